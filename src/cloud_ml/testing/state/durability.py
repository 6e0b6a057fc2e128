"""What survives, and what closing means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_ml.errors import Conflict, Unauthenticated, Unavailable
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.testing.state.samples import NOW, SAMPLE, commit, event, list_messages, make, once

Reopen = Callable[[], StateStore]


class DurabilityContract:
    @pytest.fixture
    def reopen(self) -> Reopen | None:
        """Opens the same data again, after the first store was closed; ``None`` if the store
        keeps none.
        """
        return None

    def test_everything_survives_a_restart(self, store: StateStore, reopen: Reopen | None) -> None:
        if reopen is None:
            pytest.skip("this store keeps nothing")
        kept = commit(store, make(store, events=[event("made")], title="Mine"))
        gone = make(store, "gone", idempotency_key="k")
        store.delete(SAMPLE, gone.key.uid, fence=None)
        store.remember(once())
        lease = store.acquire_lease("leader", "a", ttl_s=10, now=NOW)
        assert lease is not None
        lines, changes, revision = store.list(SAMPLE), store.changes(0), store.revision()
        store.close()

        again = reopen()
        try:
            assert again.get(SAMPLE, kept.key.uid) == kept
            assert list_messages(again, kept) == ["made"]
            assert (again.list(SAMPLE), again.changes(0), again.revision()) == (
                lines,
                changes,
                revision,
            )
            assert again.acquire_lease("leader", "b", ttl_s=10, now=NOW) is None
            with pytest.raises(Unauthenticated):
                again.remember(once())
            with pytest.raises(Conflict):
                make(again, "gone", idempotency_key="k")
            assert commit(again, kept, fence=Fence("leader", lease.epoch)).revision > revision
        finally:
            again.close()

    def test_a_closed_store_does_not_answer(self, store: StateStore) -> None:
        made = make(store)
        store.close()
        store.close()
        with pytest.raises(Unavailable):
            store.get(SAMPLE, made.key.uid)
        with pytest.raises(Unavailable):
            make(store, "two")

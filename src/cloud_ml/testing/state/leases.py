"""Leases with epochs, and the fences they give. Time is what the caller says it is."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from cloud_ml.errors import FenceLost
from cloud_ml.state.base import Fence, Lease, StateStore
from cloud_ml.testing.state.samples import (
    NOW,
    SAMPLE,
    SampleSpec,
    commit,
    event,
    list_messages,
    make,
)

TTL_S = 10.0
PATIENCE_S = 20.0
SOON = NOW + timedelta(seconds=TTL_S - 0.000001)
OVER = NOW + timedelta(seconds=TTL_S)


def take(store: StateStore, holder: str, now: object = NOW, name: str = "leader") -> Lease:
    lease = store.acquire_lease(name, holder, ttl_s=TTL_S, now=now)  # type: ignore[arg-type]
    assert lease is not None
    return lease


class LeaseContract:
    def test_a_free_lease_is_taken(self, store: StateStore) -> None:
        assert take(store, "a") == Lease("leader", "a", 1, OVER)

    def test_a_held_lease_is_refused_to_others_until_it_expires(self, store: StateStore) -> None:
        take(store, "a")
        assert store.acquire_lease("leader", "b", ttl_s=TTL_S, now=SOON) is None
        assert take(store, "b", OVER) == Lease("leader", "b", 2, OVER + timedelta(seconds=TTL_S))
        assert store.acquire_lease("leader", "a", ttl_s=TTL_S, now=OVER) is None

    def test_the_holder_extends_within_its_epoch(self, store: StateStore) -> None:
        take(store, "a")
        assert take(store, "a", SOON) == Lease("leader", "a", 1, SOON + timedelta(seconds=TTL_S))
        assert store.acquire_lease("leader", "b", ttl_s=TTL_S, now=OVER) is None

    def test_a_lease_is_found_as_it_was_taken_last(self, store: StateStore) -> None:
        assert store.find_lease("leader") is None
        lease = take(store, "a")
        assert store.find_lease("leader") == lease
        store.release_lease(lease)
        found = store.find_lease("leader")
        assert found is not None
        assert found.holder == "a"
        assert found.expires_at <= NOW

    def test_a_lease_whose_end_is_far_off_is_taken_once_it_stood_still(
        self, store: StateStore
    ) -> None:
        """Its holder was killed while its clock was ahead, and the clock was put right."""
        brief_s = 0.05
        store.acquire_lease("leader", "killed", ttl_s=brief_s, now=NOW + timedelta(days=1))
        assert store.acquire_lease("leader", "b", ttl_s=brief_s, now=NOW) is None
        until = time.monotonic() + PATIENCE_S
        while (lease := store.acquire_lease("leader", "b", ttl_s=brief_s, now=NOW)) is None:
            assert time.monotonic() < until, "it is never free"
        assert (lease.holder, lease.epoch) == ("b", 2)

    def test_a_lease_that_is_renewed_is_refused_however_its_holders_clock_goes(
        self, store: StateStore
    ) -> None:
        brief_s, ahead = 0.02, NOW + timedelta(days=1)
        until = time.monotonic() + 10 * brief_s
        while time.monotonic() < until:
            ahead += timedelta(microseconds=1)
            assert store.acquire_lease("leader", "a", ttl_s=brief_s, now=ahead) is not None
            assert store.acquire_lease("leader", "b", ttl_s=brief_s, now=NOW) is None

    def test_a_holder_that_overslept_starts_a_new_epoch(self, store: StateStore) -> None:
        take(store, "a")
        assert take(store, "a", OVER).epoch == 2

    def test_a_released_lease_is_free_at_once(self, store: StateStore) -> None:
        store.release_lease(take(store, "a"))
        assert take(store, "b").epoch == 2

    def test_releasing_what_has_passed_on_changes_nothing(self, store: StateStore) -> None:
        old = take(store, "a")
        take(store, "b", OVER)
        store.release_lease(old)
        assert store.acquire_lease("leader", "c", ttl_s=TTL_S, now=OVER) is None

    def test_releasing_what_never_was_is_success(self, store: StateStore) -> None:
        store.release_lease(Lease("leader", "a", 1, OVER))

    def test_leases_of_other_names_are_other_leases(self, store: StateStore) -> None:
        take(store, "a")
        assert take(store, "b", name="collector").epoch == 1

    def test_a_fence_in_force_lets_writes_through(self, store: StateStore) -> None:
        fence = Fence("leader", take(store, "a").epoch)
        take(store, "a", SOON)
        made = commit(store, make(store), fence=fence)
        store.delete(SAMPLE, made.key.uid, fence=fence)
        assert store.get(SAMPLE, made.key.uid) is None

    @pytest.mark.parametrize("fence", [Fence("leader", 1), Fence("unheard of", 1)])
    def test_a_fence_that_was_lost_stops_every_write(self, store: StateStore, fence: Fence) -> None:
        take(store, "a")
        take(store, "b", OVER)
        made = make(store)
        with pytest.raises(FenceLost):
            commit(store, made, fence=fence, events=[event("from the past")])
        with pytest.raises(FenceLost):
            store.delete(SAMPLE, made.key.uid, fence=fence)
        with pytest.raises(FenceLost):
            store.change_spec(
                SAMPLE, made.key.uid, lambda _: SampleSpec("other"), now=NOW, fence=fence
            )
        with pytest.raises(FenceLost):
            store.request_delete(SAMPLE, made.key.uid, now=NOW, fence=fence)
        assert store.get(SAMPLE, made.key.uid) == made
        assert list_messages(store, made) == []

    def test_a_lost_fence_is_told_before_a_stale_revision(self, store: StateStore) -> None:
        take(store, "a")
        take(store, "b", OVER)
        made = make(store)
        commit(store, made)
        with pytest.raises(FenceLost):
            commit(store, made, fence=Fence("leader", 1))

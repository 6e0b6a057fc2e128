"""What is asked twice happens once: idempotency keys and ``Once`` tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cloud_ml.domain.records import Record
from cloud_ml.errors import AlreadyExists, Conflict, Unauthenticated
from cloud_ml.state.base import Once, StateStore
from cloud_ml.testing.state.samples import (
    LATER,
    NOW,
    OTHER,
    SAMPLE,
    Progress,
    SampleSpec,
    commit,
    event,
    list_messages,
    make,
    once,
)

Mutation = Callable[[StateStore, Record[SampleSpec, Progress], Once], object]
MUTATIONS: dict[str, Mutation] = {
    "create": lambda store, _, token: make(store, "two", once=token),
    "change_spec": lambda store, made, token: store.change_spec(
        SAMPLE,
        made.key.uid,
        lambda spec: SampleSpec(spec.text, spec.count + 1),
        now=LATER,
        once=token,
    ),
    "change_spec to the same": lambda store, made, token: store.change_spec(
        SAMPLE, made.key.uid, lambda spec: spec, now=LATER, once=token
    ),
    "request_delete": lambda store, made, token: store.request_delete(
        SAMPLE, made.key.uid, now=LATER, once=token
    ),
    "remember": lambda store, _, token: store.remember(token),
}


class RepeatContract:
    def test_an_idempotency_key_answers_with_the_record_as_it_is_now(
        self, store: StateStore
    ) -> None:
        made = make(store, idempotency_key="k", events=[event("made")])
        now = commit(store, made)
        before = store.revision()
        assert (
            make(
                store,
                "another",
                idempotency_key="k",
                spec=SampleSpec("else"),
                events=[event("again")],
            )
            == now
        )
        assert store.find(SAMPLE, "red", "another") is None
        assert store.revision() == before
        assert list_messages(store, made) == ["made"]

    def test_idempotency_keys_belong_to_an_organisation_and_a_kind(self, store: StateStore) -> None:
        uids = {
            make(store, idempotency_key="k").key.uid,
            make(store, idempotency_key="k", org="blue").key.uid,
            make(store, idempotency_key="k", kind=OTHER).key.uid,
            make(store, "two", idempotency_key="l").key.uid,
        }
        assert len(uids) == 4

    def test_a_key_is_known_to_have_made_a_record_even_if_that_is_gone(
        self, store: StateStore
    ) -> None:
        assert not store.has_made(SAMPLE, "red", "k")
        made = make(store, idempotency_key="k")
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert store.has_made(SAMPLE, "red", "k")
        assert not store.has_made(SAMPLE, "blue", "k")
        assert not store.has_made(OTHER, "red", "k")
        assert not store.has_made(SAMPLE, "red", "\ud800")

    def test_a_refused_create_does_not_use_up_its_key(self, store: StateStore) -> None:
        make(store)
        with pytest.raises(AlreadyExists):
            make(store, idempotency_key="k", once=once())
        assert make(store, "two", idempotency_key="k", once=once()).key.name == "two"

    def test_an_idempotency_key_outlives_its_record(self, store: StateStore) -> None:
        made = make(store, idempotency_key="k")
        store.delete(SAMPLE, made.key.uid, fence=None)
        store.prune(NOW + timedelta(days=29))
        with pytest.raises(Conflict):
            make(store, idempotency_key="k")
        store.prune(NOW + timedelta(days=31))
        assert make(store, idempotency_key="k").key.uid != made.key.uid

    @pytest.mark.parametrize("name", MUTATIONS)
    def test_a_token_is_good_for_one_mutation(self, store: StateStore, name: str) -> None:
        made = make(store)
        MUTATIONS[name](store, made, once())
        before = store.revision()
        for mutation in MUTATIONS.values():
            with pytest.raises(Unauthenticated):
                mutation(store, made, once())
        assert store.revision() == before
        MUTATIONS[name](store, made, once("another")) if name != "create" else make(
            store, "three", once=once("another")
        )

    def test_a_replayed_create_is_refused_although_its_idempotency_key_is_known(
        self, store: StateStore
    ) -> None:
        make(store, idempotency_key="k", once=once())
        with pytest.raises(Unauthenticated):
            make(store, idempotency_key="k", once=once())

    def test_tokens_are_pruned_when_they_expire_and_not_before(self, store: StateStore) -> None:
        store.remember(once(expires_at=LATER))
        store.prune(LATER - timedelta(microseconds=1))
        with pytest.raises(Unauthenticated):
            store.remember(once())
        store.prune(LATER)
        store.remember(once())

    def test_prune_gets_through_many_marks(self, store: StateStore) -> None:
        for number in range(2100):
            store.remember(once(f"token {number}"))
        store.prune(LATER)
        for number in (0, 1050, 2099):
            store.remember(once(f"token {number}"))

"""Many threads at once: one winner where there can be one, and nothing lost."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial

from cloud_ml.domain.records import Record
from cloud_ml.errors import AlreadyExists, StaleRevision, Unauthenticated
from cloud_ml.state.base import StateStore
from cloud_ml.testing.state.samples import (
    LATER,
    NOW,
    SAMPLE,
    Progress,
    commit,
    event,
    list_messages,
    make,
    once,
    race,
)

THREADS = 8
ROUNDS = 10


class RaceContract:
    def test_one_create_wins_a_name(self, store: StateStore) -> None:
        for number in range(ROUNDS):
            results = race([partial(make, store, f"n{number}")] * THREADS)
            assert sum(isinstance(result, Record) for result in results) == 1
            assert sum(isinstance(result, AlreadyExists) for result in results) == THREADS - 1

    def test_an_idempotency_key_makes_one_record(self, store: StateStore) -> None:
        for number in range(ROUNDS):
            results = race(
                [partial(make, store, f"n{number}", idempotency_key=f"k{number}")] * THREADS
            )
            assert all(result == store.find(SAMPLE, "red", f"n{number}") for result in results)

    def test_a_token_is_used_up_by_one(self, store: StateStore) -> None:
        for number in range(ROUNDS):
            results = race([partial(store.remember, once(f"token {number}"))] * THREADS)
            assert results.count(None) == 1
            assert sum(isinstance(result, Unauthenticated) for result in results) == THREADS - 1

    def test_one_commit_wins_a_revision(self, store: StateStore) -> None:
        made = make(store)
        for _ in range(ROUNDS):
            results = race([partial(commit, store, made, events=[event("won")])] * THREADS)
            (made,) = [result for result in results if isinstance(result, Record)]
            assert sum(isinstance(result, StaleRevision) for result in results) == THREADS - 1
        assert list_messages(store, made) == ["won"] * ROUNDS

    def test_no_change_of_a_spec_is_lost(self, store: StateStore) -> None:
        made = make(store)

        def count_up() -> None:
            for _ in range(ROUNDS):
                store.change_spec(
                    SAMPLE,
                    made.key.uid,
                    lambda spec: replace(spec, count=spec.count + 1),
                    now=LATER,
                )

        assert race([count_up] * THREADS) == [None] * THREADS
        record = store.get(SAMPLE, made.key.uid)
        assert record is not None
        assert record.spec.count == record.generation == 1 + THREADS * ROUNDS

    def test_one_holder_gets_the_lease(self, store: StateStore) -> None:
        for number in range(ROUNDS):
            now = NOW + timedelta(minutes=number)
            holders = [f"holder {thread}" for thread in range(THREADS)]
            takes = [
                partial(store.acquire_lease, "leader", holder, ttl_s=10, now=now)
                for holder in holders
            ]
            (lease,) = [result for result in race(takes) if result is not None]
            assert getattr(lease, "epoch", None) == number + 1

    def test_a_follower_hears_of_every_commit_and_never_twice_of_one(
        self, store: StateStore
    ) -> None:
        finished = threading.Event()
        seen: dict[str, int] = {}
        revisions: list[int] = []

        def follow() -> None:
            after = 0
            while True:
                was_finished = finished.is_set()
                page = store.changes(after, limit=5)
                revisions.extend(change.revision for change in page)
                seen.update({change.uid: change.revision for change in page})
                if page:
                    after = page[-1].revision
                elif was_finished:
                    return

        def write(thread: int) -> list[Record[object, Progress]]:
            written = []
            for number in range(ROUNDS):
                made = make(store, f"n{thread}-{number}")
                written.append(commit(store, made) if number % 2 else made)
            return written  # type: ignore[return-value]

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            results = race([partial(write, thread) for thread in range(THREADS)])
        finally:
            finished.set()
            follower.join()
        written = [record for result in results if isinstance(result, list) for record in result]
        assert len(written) == THREADS * ROUNDS
        assert seen == {record.key.uid: record.revision for record in written}
        assert revisions == sorted(set(revisions))

    def test_acknowledged_means_visible_to_everybody(self, store: StateStore) -> None:
        def write_and_read(thread: int) -> bool:
            return all(
                store.get(SAMPLE, (made := make(store, f"n{thread}-{number}")).key.uid) == made
                and store.revision() >= made.revision
                for number in range(ROUNDS)
            )

        assert (
            race([partial(write_and_read, thread) for thread in range(THREADS)]) == [True] * THREADS
        )

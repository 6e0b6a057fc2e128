"""Revisions, the feed of changes, and wake-ups."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.errors import AlreadyExists
from cloud_ml.state.base import Change, StateStore
from cloud_ml.testing.state.samples import LATER, NOW, OTHER, SAMPLE, commit, event, make, once


class FeedContract:
    def test_a_new_store_stands_at_zero(self, store: StateStore) -> None:
        assert store.revision() == 0
        assert store.changes(0) == ()

    def test_every_change_takes_a_newer_revision(self, store: StateStore) -> None:
        made = make(store)
        other = make(store, kind=OTHER)
        committed = commit(store, made)
        changed = store.change_spec(
            SAMPLE, made.key.uid, lambda spec: replace(spec, count=9), now=LATER
        )
        marked = store.request_delete(SAMPLE, made.key.uid, now=LATER)
        taken = [record.revision for record in (made, other, committed, changed, marked)]
        assert taken == sorted(set(taken))
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert store.revision() > taken[-1]

    def test_the_feed_tells_the_newest_change_of_each_record_in_order(
        self, store: StateStore
    ) -> None:
        one, two, three = (make(store, name) for name in ("one", "two", "three"))
        newest = commit(store, one)
        assert store.changes(0) == (
            Change(two.revision, "wish", two.key.uid),
            Change(three.revision, "wish", three.key.uid),
            Change(newest.revision, "wish", one.key.uid),
        )
        assert store.changes(newest.revision) == ()

    def test_the_feed_tells_of_deletions(self, store: StateStore) -> None:
        made, kept = make(store), make(store, "two")
        at = store.revision()
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert store.changes(at) == (Change(store.revision(), "wish", made.key.uid),)
        assert [change.uid for change in store.changes(0)] == [kept.key.uid, made.key.uid]
        changes = [(change.org, change.name, change.gone) for change in store.changes(0)]
        assert changes == [("red", "two", False), ("red", "one", True)]

    def test_the_feed_is_read_in_pages(self, store: StateStore) -> None:
        made = [make(store, f"n{number}") for number in range(7)]
        store.delete(SAMPLE, made[3].key.uid, fence=None)
        seen: list[str] = []
        after = 0
        while page := store.changes(after, limit=3):
            assert len(page) <= 3
            seen += [change.uid for change in page]
            after = page[-1].revision
        assert seen == [record.key.uid for record in [*made[:3], *made[4:], made[3]]]
        assert after == store.revision()

    def test_marks_of_deletion_stay_for_a_week(self, store: StateStore) -> None:
        made = make(store)
        store.delete(SAMPLE, made.key.uid, fence=None)
        today = datetime.now(UTC)
        store.prune(today + timedelta(days=6))
        assert [change.uid for change in store.changes(0)] == [made.key.uid]
        store.prune(today + timedelta(days=8))
        assert store.changes(0) == ()
        assert store.revision() > made.revision

    def test_followers_are_woken_after_the_commit(self, store: StateStore) -> None:
        heard: list[int] = []
        store.subscribe(lambda: heard.append(store.revision()))
        made = make(store)
        assert heard[-1] == made.revision
        committed = commit(store, made)
        assert heard[-1] == committed.revision
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert heard[-1] == store.revision() > committed.revision

    def test_an_event_wakes_those_who_follow_it(self, store: StateStore) -> None:
        made = make(store)
        heard: list[int] = []
        store.subscribe(lambda: heard.append(len(store.events(made.key.uid))))
        store.add_event(made.key.uid, event("news"))
        assert heard[-1] == 1

    def test_what_nobody_follows_wakes_nobody(self, store: StateStore) -> None:
        heard: list[str] = []
        make(store)
        store.subscribe(lambda: heard.append("woken"))
        lease = store.acquire_lease("leader", "a", ttl_s=10, now=NOW)
        assert lease is not None
        store.release_lease(lease)
        store.remember(once())
        store.prune(NOW)
        with pytest.raises(AlreadyExists):
            make(store)
        assert heard == []

    def test_unsubscribing_is_final_and_leaves_the_others(self, store: StateStore) -> None:
        first: list[int] = []
        second: list[int] = []
        unsubscribe = store.subscribe(lambda: first.append(1))
        store.subscribe(lambda: second.append(1))
        unsubscribe()
        unsubscribe()
        make(store)
        assert (first, second) == ([], [1])

    def test_a_follower_that_fails_harms_neither_the_commit_nor_the_others(
        self, store: StateStore
    ) -> None:
        heard: list[int] = []

        def fail() -> None:
            raise RuntimeError("I overslept")

        store.subscribe(fail)
        store.subscribe(lambda: heard.append(1))
        made = make(store)
        assert store.get(SAMPLE, made.key.uid) == made
        assert heard == [1]

"""Records that were made for others: found by them, told of with them, and never left without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cloud_ml.domain.records import ParentRef, Record
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match
from cloud_ml.testing.state.samples import NOW, OTHER, SAMPLE, Made, commit, make, race

ROUNDS = 10


def parent_ref(record: Made) -> ParentRef:
    return ParentRef(record.key.kind, record.key.uid)


class ParentContract:
    def test_a_record_names_its_parent(self, store: StateStore) -> None:
        parent = make(store)
        assert parent.parent is None
        child = make(store, kind=OTHER, parent=parent_ref(parent))
        assert child.parent == parent_ref(parent)
        assert store.get(OTHER, child.key.uid) == child
        marked = store.request_delete(OTHER, child.key.uid, now=NOW)
        assert marked.parent == child.parent

    def test_a_parent_stays_the_same_over_commits(self, store: StateStore) -> None:
        parent = make(store)
        child = make(store, "child", parent=parent_ref(parent))
        assert commit(store, child).parent == child.parent

    def test_children_are_found_by_their_parent(self, store: StateStore) -> None:
        parents = [make(store, f"p{number}") for number in range(2)]
        for number in range(4):
            parent = parent_ref(parents[number % 2])
            make(store, f"c{number}", kind=OTHER, parent=parent)

        def children(match: Match) -> list[str]:
            return [line.key.name for line in store.list(OTHER, match=match).items]

        assert children(Match(parent=parents[0].key.uid)) == ["c2", "c0"]
        assert children(Match(parent=parents[1].key.uid, owner="ann", name="c1")) == ["c1"]
        assert not store.list(SAMPLE, match=Match(parent=parents[0].key.uid)).items
        assert not store.list(OTHER, match=Match(parent="nobody")).items

    @pytest.mark.parametrize("kind", ["wish", "other"])
    def test_a_parent_must_be_there(self, store: StateStore, kind: str) -> None:
        gone = make(store)
        store.delete(SAMPLE, gone.key.uid, fence=None)
        revision = store.revision()
        with pytest.raises(NotFound, match=kind):
            make(store, "child", parent=ParentRef(kind, gone.key.uid))
        assert store.revision() == revision
        assert store.find(SAMPLE, "red", "child") is None

    def test_a_parent_is_of_its_kind(self, store: StateStore) -> None:
        parent = make(store)
        with pytest.raises(NotFound):
            make(store, "child", parent=ParentRef(OTHER.name, parent.key.uid))

    def test_a_parent_outlives_its_children(self, store: StateStore) -> None:
        parent = make(store)
        child = make(store, kind=OTHER, parent=parent_ref(parent))
        with pytest.raises(Conflict):
            store.delete(SAMPLE, parent.key.uid, fence=None)
        assert store.get(SAMPLE, parent.key.uid) == parent
        assert store.find(SAMPLE, "red", "one") == parent
        store.delete(OTHER, child.key.uid, fence=None)
        store.delete(SAMPLE, parent.key.uid, fence=None)
        assert store.get(SAMPLE, parent.key.uid) is None

    def test_the_feed_tells_whose_child_changed(self, store: StateStore) -> None:
        parent = make(store)
        before = store.revision()
        child = make(store, kind=OTHER, parent=parent_ref(parent))
        (made,) = store.changes(before)
        assert (made.uid, made.gone, made.parent) == (child.key.uid, False, parent_ref(parent))
        store.delete(OTHER, child.key.uid, fence=None)
        (gone,) = store.changes(made.revision)
        assert (gone.uid, gone.gone, gone.parent) == (child.key.uid, True, parent_ref(parent))
        assert store.changes(0)[0].parent is None

    def test_no_child_is_left_alone_by_a_race(self, store: StateStore) -> None:
        for number in range(ROUNDS):
            parent = make(store, f"p{number}")
            actions: list[Callable[[], object]] = [
                partial(make, store, f"c{number}", kind=OTHER, parent=parent_ref(parent)),
                partial(store.delete, SAMPLE, parent.key.uid, fence=None),
            ]
            made, removed = race(actions)
            assert isinstance(made, Record) == isinstance(removed, Conflict)
            assert isinstance(made, NotFound) == (removed is None)
            there = store.get(SAMPLE, parent.key.uid) is not None
            assert there == (store.find(OTHER, "red", f"c{number}") is not None)

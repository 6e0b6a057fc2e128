"""Long lists of statuses: written item by item, read whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from cloud_ml.domain.records import ItemList, Kind, Record
from cloud_ml.errors import InvalidRequest, SeenBefore, StaleRevision
from cloud_ml.state.base import StateStore
from cloud_ml.testing.state.samples import LATER, NOW, Phase, SampleSpec, once


@dataclass(frozen=True)
class Mark:
    at: int


@dataclass(frozen=True)
class Step:
    text: str
    share: float = 0.0
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Plan:
    phase: Phase = Phase.WAITING
    steps: tuple[Step, ...] = ()


PLAN: Kind[SampleSpec, Plan] = Kind(
    "plan", SampleSpec, Plan, items=ItemList("steps", Step, "marks", Mark)
)
Planned = Record[SampleSpec, Plan]


def _make(store: StateStore, *steps: Step, name: str = "one") -> Planned:
    return store.create(
        PLAN, org="red", name=name, owner="ann", spec=SampleSpec("a bike"), status=Plan(steps=steps),
        now=NOW,
    )  # fmt: skip


def _commit(store: StateStore, record: Planned, *steps: Step) -> Planned:
    return store.commit_status(
        PLAN, record.key.uid, replace(record.status, steps=steps),
        expected_revision=record.revision, fence=None, now=LATER,
    )  # fmt: skip


class ItemContract:
    def test_items_are_read_as_they_were_written(self, store: StateStore) -> None:
        record = _make(store, Step("first", marks=(Mark(1), Mark(2))), Step("second"))
        uid = record.key.uid
        for _ in range(2):
            assert store.get(PLAN, uid) == record
            assert store.find(PLAN, "red", "one") == record
        first, second = record.status.steps
        after = _commit(store, record, first, replace(second, share=0.5), Step("third"))
        assert [step.share for step in after.status.steps] == [0.0, 0.5, 0.0]
        assert after.status.steps[0].marks == (Mark(1), Mark(2))
        assert store.get(PLAN, uid) == store.find(PLAN, "red", "one") == after

    def test_elements_of_an_item_are_added_one_by_one(self, store: StateStore) -> None:
        record = _make(store, Step("a"), Step("b", marks=(Mark(7),)))
        for at in range(5):
            a, b = record.status.steps
            record = _commit(store, record, replace(a, marks=(*a.marks, Mark(at))), b)
        found = store.get(PLAN, record.key.uid)
        assert found == record
        assert found.status.steps[0].marks == tuple(map(Mark, range(5)))

    def test_items_are_there_after_all_other_changes(self, store: StateStore) -> None:
        record = _make(store, Step("a"))
        uid = record.key.uid
        changed = store.change_spec(PLAN, uid, lambda spec: SampleSpec("a car"), now=LATER)
        assert changed.status.steps == (Step("a"),)
        same = store.change_spec(PLAN, uid, lambda spec: spec, now=LATER)
        assert same == changed == store.get(PLAN, uid)
        marked = store.request_delete(PLAN, uid, now=LATER)
        assert marked.status.steps == (Step("a"),)
        store.delete(PLAN, uid, fence=None)
        assert store.get(PLAN, uid) is None
        assert store.find(PLAN, "red", "one") is None
        assert _make(store).status.steps == ()

    def test_a_stale_commit_writes_no_item(self, store: StateStore) -> None:
        record = _make(store, Step("a"))
        newer = _commit(store, record, Step("b"))
        with pytest.raises(StaleRevision):
            _commit(store, record, Step("c"), Step("d"))
        assert store.get(PLAN, record.key.uid) == newer

    def test_a_list_loses_nothing(self, store: StateStore) -> None:
        record = _make(store, Step("a", marks=(Mark(1),)), Step("b"))
        with pytest.raises(ValueError, match="steps"):
            _commit(store, record, *record.status.steps[:1])
        with pytest.raises(ValueError, match="marks"):
            _commit(store, record, Step("a"), record.status.steps[1])
        assert store.get(PLAN, record.key.uid) == record

    def test_what_cannot_be_read_is_not_written(self, store: StateStore) -> None:
        record = _make(store)
        with pytest.raises(ValueError, match="JSON"):
            _commit(store, record, Step("a", math.inf))
        with pytest.raises(InvalidRequest):
            _commit(store, record, Step(3))  # type: ignore[arg-type]
        assert store.get(PLAN, record.key.uid) == record

    def test_a_commit_may_use_up_a_token(self, store: StateStore) -> None:
        record = _make(store)

        def commit(status: Plan) -> Planned:
            return store.commit_status(
                PLAN, record.key.uid, status, expected_revision=record.revision, fence=None,
                now=LATER, once=once(),
            )  # fmt: skip

        record = commit(Plan(steps=(Step("a"),)))
        with pytest.raises(SeenBefore):
            commit(Plan(steps=(Step("b"),)))
        assert store.get(PLAN, record.key.uid) == record

    def test_a_second_store_reads_and_writes_the_same_items(
        self, store: StateStore, reopen: Callable[[], StateStore] | None
    ) -> None:
        if reopen is None:
            pytest.skip("this store keeps nothing")
        record = _make(store, Step("a", marks=(Mark(0),)))
        other = reopen()
        try:
            seen = other.get(PLAN, record.key.uid)
            assert seen == record
            for number in range(1, 6):  # in turns, each beside what it knows itself
                writer, reader = (store, other) if number % 2 else (other, store)
                known = writer.find(PLAN, "red", "one")
                assert known is not None
                a, *more = known.status.steps
                a = replace(a, share=number / 2, marks=(*a.marks, Mark(number)))
                made = _commit(writer, known, a, *more, Step(f"step {number}"))
                assert reader.get(PLAN, record.key.uid) == made
        finally:
            other.close()
        last = store.get(PLAN, record.key.uid)
        assert last is not None
        assert [step.text for step in last.status.steps] == [
            "a",
            *(f"step {n}" for n in range(1, 6)),
        ]
        assert last.status.steps[0].marks == tuple(map(Mark, range(6)))

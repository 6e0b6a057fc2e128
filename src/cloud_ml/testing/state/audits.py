"""The audit log: an entry in the transaction of what it tells of, never changed, found by who,
what and when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import ParentRef
from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, Unauthenticated
from cloud_ml.state import rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.testing.state.samples import LATER, NOW, SAMPLE, SampleSpec, make

ENTRY = AuditEntry(NOW, "red", "ann", "AK1", "192.0.2.1", "req1", "wishes.make")
ANY = AuditFilter()
MUTATIONS: dict[str, Callable[[StateStore, str, Once], object]] = {
    "create": lambda store, _, once: make(store, "two", once=once),
    "change_spec": lambda store, uid, once: store.change_spec(
        SAMPLE, uid, lambda _: SampleSpec("else"), now=LATER, once=once
    ),
    "change_spec to the same": lambda store, uid, once: store.change_spec(
        SAMPLE, uid, lambda spec: spec, now=LATER, once=once
    ),
    "request_delete": lambda store, uid, once: store.request_delete(
        SAMPLE, uid, now=LATER, once=once
    ),
    "remember": lambda store, _, once: store.remember(once),
}


def make_once(token: str = "a token", entry: AuditEntry = ENTRY) -> Once:
    return Once(token, LATER, entry)


def targets(store: StateStore, audit_filter: AuditFilter = ANY) -> list[str]:
    return [entry.target for entry in store.audit(audit_filter).items]


class AuditContract:
    @pytest.mark.parametrize("name", MUTATIONS)
    def test_a_mutation_leaves_its_entry(self, store: StateStore, name: str) -> None:
        made = make(store)
        began = rules.utc_now()
        MUTATIONS[name](store, made.key.uid, make_once())
        (entry,) = store.audit(ANY).items
        assert began <= entry.at <= rules.utc_now(), "not when the request began"
        about = {"create": "two", "remember": ""}.get(name, "one")
        change = f"text: {made.spec.text} → else" if name == "change_spec" else ""
        assert entry == replace(ENTRY, at=entry.at, target=about, id=entry.id, change=change)

    def test_a_target_that_is_known_is_kept(self, store: StateStore) -> None:
        make(store, once=make_once(entry=replace(ENTRY, target="bucket/key")))
        assert targets(store) == ["bucket/key"]

    def test_what_did_not_happen_leaves_none(self, store: StateStore) -> None:
        make(store)
        with pytest.raises(AlreadyExists):
            make(store, once=make_once())
        with pytest.raises(NotFound):
            store.request_delete(SAMPLE, "none", now=LATER, once=make_once())
        store.remember(Once("a token", LATER))
        with pytest.raises(Unauthenticated):
            store.remember(make_once())
        assert store.audit(ANY).items == ()

    def test_a_removal_leaves_its_entry_only_if_it_happens(self, store: StateStore) -> None:
        parent = make(store)
        child = make(store, "child", parent=ParentRef(SAMPLE.name, parent.key.uid))
        with pytest.raises(Conflict):
            store.delete(SAMPLE, parent.key.uid, fence=None, entry=replace(ENTRY, target="one"))
        assert targets(store) == []
        began = rules.utc_now()
        store.delete(SAMPLE, child.key.uid, fence=None, entry=replace(ENTRY, target="child"))
        assert targets(store) == ["child"]
        assert began <= store.audit(ANY).items[0].at

    def test_what_was_refused_is_noted_by_itself(self, store: StateStore) -> None:
        store.add_audit(replace(ENTRY, outcome="forbidden"))
        (entry,) = store.audit(ANY).items
        assert (entry.outcome, entry.at) == ("forbidden", NOW)

    def test_entries_come_newest_first_in_pages(self, store: StateStore) -> None:
        for number in range(5):
            store.add_audit(replace(ENTRY, target=str(number)))
        first = store.audit(ANY, limit=2)
        store.add_audit(replace(ENTRY, target="newer"))
        second = store.audit(ANY, limit=2, after=first.next)
        third = store.audit(ANY, limit=2, after=second.next)
        found = [entry.target for page in (first, second, third) for entry in page.items]
        assert found == ["4", "3", "2", "1", "0"]
        assert third.next is None
        ids = [entry.id for page in (first, second, third) for entry in page.items]
        assert ids == sorted(set(ids), reverse=True)

    @pytest.mark.parametrize(
        ("audit_filter", "expected"),
        [
            (AuditFilter(org="blue"), ["b"]),
            (AuditFilter(user="ann"), ["d", "a/x", "a"]),
            (AuditFilter(key="AK2"), ["b"]),
            (AuditFilter(operation="wishes"), ["d", "a/x", "b", "a"]),
            (AuditFilter(operation="Wishes"), []),
            (AuditFilter(operation="wishes.drop"), ["d"]),
            (AuditFilter(target="a"), ["a/x", "a"]),
            (AuditFilter(target="%"), []),
            (AuditFilter(outcome="forbidden"), ["a/x"]),
            (AuditFilter(since=LATER), ["d"]),
            (AuditFilter(until=LATER), ["a/x", "b", "a"]),
            (AuditFilter(org="red", user="ann", since=NOW, until=LATER), ["a/x", "a"]),
        ],
    )
    def test_filters(
        self, store: StateStore, audit_filter: AuditFilter, expected: list[str]
    ) -> None:
        store.add_audit(replace(ENTRY, target="a"))
        store.add_audit(replace(ENTRY, target="b", org="blue", user="bob", key="AK2"))
        store.add_audit(replace(ENTRY, target="a/x", outcome="forbidden"))
        store.add_audit(replace(ENTRY, target="d", operation="wishes.drop", at=LATER))
        assert targets(store, audit_filter) == expected

    def test_a_page_has_bounds(self, store: StateStore) -> None:
        for limit in (0, 1001):
            with pytest.raises(InvalidRequest):
                store.audit(ANY, limit=limit)

    def test_texts_that_databases_refuse_are_stored_without_it(self, store: StateStore) -> None:
        store.add_audit(replace(ENTRY, target="a\x00b\ud800" + "c" * 1000, user="\x00"))
        (entry,) = store.audit(ANY).items
        assert "\x00" not in entry.target + entry.user
        assert len(entry.target) == 512

    def test_old_entries_are_dropped_and_ids_go_on(self, store: StateStore) -> None:
        store.add_audit(ENTRY)
        store.add_audit(replace(ENTRY, at=NOW + timedelta(days=1), target="young"))
        newest = store.audit(ANY).items[0].id
        store.prune(NOW + timedelta(days=365))
        assert targets(store) == ["young"]
        store.prune(NOW + timedelta(days=366))
        store.add_audit(ENTRY)
        assert store.audit(ANY).items[0].id > newest

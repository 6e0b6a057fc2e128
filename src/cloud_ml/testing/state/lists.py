"""Lists: newest first, filtered, in pages that stay put while others write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from cloud_ml.domain.records import Kind, Summary
from cloud_ml.errors import InvalidRequest
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match, owner_tag
from cloud_ml.testing.state.samples import (
    FOUND,
    LATER,
    NOW,
    OTHER,
    SAMPLE,
    Made,
    Phase,
    Progress,
    SampleSpec,
    commit,
    make,
)


def names(items: object) -> list[str]:
    assert isinstance(items, tuple)
    return [item.key.name for item in items]


def walk(
    store: StateStore, *, limit: int, kind: Kind[SampleSpec, Progress] = SAMPLE, **filters: object
) -> list[str]:
    """All names of a list, page by page."""
    found: list[str] = []
    after: int | None = None
    while True:
        page = store.list(kind, after=after, limit=limit, **filters)  # type: ignore[arg-type]
        assert len(page.items) <= limit
        found += names(page.items)
        if page.next is None:
            return found
        after = page.next


class ListContract:
    def test_an_empty_store_lists_nothing(self, store: StateStore) -> None:
        page = store.list(SAMPLE)
        assert page.items == ()
        assert page.next is None

    def test_a_line_says_what_a_list_shows(self, store: StateStore) -> None:
        made = make(store, title="My bike", phase=Phase.BUSY)
        commit(store, made, Phase.DONE)
        (line,) = store.list(SAMPLE).items
        assert line == Summary(
            made.key, "ann", line.number, "Done", NOW, LATER, deleting=False, title="My bike"
        )

    def test_newest_first_whatever_changes_later(self, store: StateStore) -> None:
        made = [make(store, name) for name in ("a", "b", "c")]
        commit(store, made[0])
        store.change_spec(SAMPLE, made[1].key.uid, lambda spec: spec, now=LATER)
        lines = store.list(SAMPLE).items
        assert names(lines) == ["c", "b", "a"]
        assert [line.number for line in lines] == sorted(
            (line.number for line in lines), reverse=True
        )

    @pytest.mark.parametrize("org", [None, "red", "blue", "green"])
    @pytest.mark.parametrize(
        "indexes", [None, [], ["Busy"], {"Busy", "Done"}, ("Busy", "Busy", "Nonsense"), list(Phase)]
    )
    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_filters_and_pages_agree(
        self, store: StateStore, org: str | None, indexes: list[str] | None, limit: int
    ) -> None:
        expected: list[str] = []
        for number, (its_org, phase) in enumerate(list(product(("red", "blue"), Phase)) * 2):
            name = f"n{number}"
            make(store, name, org=its_org, phase=phase)
            make(store, name, org=its_org, phase=phase, kind=OTHER)
            if org in (None, its_org) and (indexes is None or phase in indexes):
                expected.insert(0, name)
        assert walk(store, limit=limit, org=org, indexes=indexes) == expected

    def test_the_last_page_knows_that_it_is_the_last(self, store: StateStore) -> None:
        for name in "abcd":
            make(store, name)
        first = store.list(SAMPLE, limit=2)
        assert first.next is not None
        assert store.list(SAMPLE, limit=2, after=first.next).next is None

    def test_pages_stay_put_while_others_write(self, store: StateStore) -> None:
        made = {name: make(store, name) for name in "abcdef"}
        first = store.list(SAMPLE, limit=2)
        make(store, "newer")
        store.delete(SAMPLE, made["e"].key.uid, fence=None)  # the very record the cursor stands on
        commit(store, made["c"])
        second = store.list(SAMPLE, limit=2, after=first.next)
        third = store.list(SAMPLE, limit=2, after=second.next)
        assert [names(page.items) for page in (first, second, third)] == [
            ["f", "e"],
            ["d", "c"],
            ["b", "a"],
        ]

    def test_a_record_moves_to_the_list_of_its_new_index(self, store: StateStore) -> None:
        made = make(store)
        commit(store, made, Phase.DONE)
        assert store.list(SAMPLE, indexes=["Waiting"]).items == ()
        assert names(store.list(SAMPLE, org="red", indexes=["Done"]).items) == ["one"]

    def test_records_are_counted_by_their_index(self, store: StateStore) -> None:
        assert store.counts(SAMPLE) == {}
        for number in range(3):
            make(store, f"n{number}", org=("red", "blue")[number % 2])
        commit(store, make(store, "busy"), Phase.BUSY)
        make(store, kind=OTHER)
        assert store.counts(SAMPLE) == {"Waiting": 3, "Busy": 1}

    def test_records_of_an_organisation_are_counted_up_to_a_bound(self, store: StateStore) -> None:
        for number in range(5):
            make(store, f"n{number}", org=("red", "blue")[number % 2])
        make(store, kind=OTHER, org="red")
        assert [store.count(SAMPLE, org="red", most=most) for most in (1, 3, 10)] == [1, 3, 3]
        assert store.count(SAMPLE, org="blue", most=10) == 2
        assert store.count(SAMPLE, org="green", most=10) == 0

    def test_records_with_a_tag_are_counted_up_to_a_bound(self, store: StateStore) -> None:
        for number in range(4):
            make(store, f"n{number}", owner="bob" if number else "ann")
        make(store, org="blue", owner="bob")
        tag = owner_tag("bob")
        assert [store.count(SAMPLE, org="red", most=most, tag=tag) for most in (2, 10)] == [2, 3]
        assert store.count(SAMPLE, org="red", most=10, tag="nothing") == 0

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    def test_a_limit_out_of_range_is_refused(self, store: StateStore, limit: int) -> None:
        for page in (
            lambda: store.list(SAMPLE, limit=limit),
            lambda: store.events("x", limit=limit),
            lambda: store.changes(0, limit=limit),
        ):
            with pytest.raises(InvalidRequest) as refused:
                page()
            assert (refused.value.field, refused.value.value) == ("limit", limit)

    def test_too_many_index_values_are_refused(self, store: StateStore) -> None:
        assert store.list(SAMPLE, indexes=[str(number) for number in range(100)]).items == ()
        with pytest.raises(InvalidRequest) as refused:
            store.list(SAMPLE, indexes=[str(number) for number in range(101)])
        assert refused.value.field == "indexes"


CONDITIONS = {
    "name": Match(name="job-3"),
    "no such name": Match(name="job"),
    "prefix": Match(prefix="job-1"),
    "empty prefix": Match(prefix=""),
    "prefix beyond plain letters": Match(prefix="job-\u00e9"),
    "owner": Match(owner="bob"),
    "tag": Match(tags=("colour=blue",)),
    "tags": Match(tags=("colour=blue", "size=1")),
    "the tag of a status": Match(tags=("note=loud",)),
    "no such tag": Match(tags=("colour=blue", "colour=green")),
    "from": Match(created_from=NOW + timedelta(seconds=4)),
    "before": Match(created_before=NOW + timedelta(seconds=4)),
    "from and before": Match(
        created_from=NOW + timedelta(seconds=2), created_before=NOW + timedelta(seconds=7)
    ),
    "an empty stretch of time": Match(created_from=NOW + timedelta(days=1)),
    "deleting": Match(deleting=True),
    "everything at once": Match(
        prefix="job-",
        owner="ann",
        tags=("colour=red",),
        created_from=NOW,
        created_before=NOW + timedelta(days=1),
    ),
}


class FindContract:
    """Lists that are narrowed by more than their index."""

    @pytest.fixture
    def filled(self, store: StateStore) -> dict[str, tuple[Made, set[str]]]:
        """Records of two organisations, made while the clock is set back twice, and their tags."""
        found = {}
        for number in range(12):
            org, owner = ("red", "blue")[number % 2], ("ann", "bob")[number % 3 == 0]
            tags = {"colour": ("red", "blue")[number % 4 == 0], "size": str(number % 3)}
            now = NOW + timedelta(seconds=number - (5 if number in (6, 9) else 0))
            record = make(
                store,
                f"job-{number}",
                kind=FOUND,
                org=org,
                owner=owner,
                spec=SampleSpec("x", tags=tags),
                now=now,
                status=Progress(Phase.WAITING, note="loud" if number == 5 else ""),
            )
            words = {f"{name}={value}" for name, value in tags.items()} | (
                {"note=loud"} if number == 5 else set()
            )
            if number in (2, 3, 7):
                record = store.commit_status(
                    FOUND,
                    record.key.uid,
                    Progress(Phase.BUSY, note="loud"),
                    expected_revision=record.revision,
                    fence=None,
                    now=LATER,
                )
                words.add("note=loud")
            if number in (4, 7):
                record = store.request_delete(FOUND, record.key.uid, now=LATER)
            found[record.key.name] = (record, words)
            make(store, f"job-{number}", kind=OTHER, org=org, owner=owner)
        return found

    @pytest.mark.parametrize("indexes", [None, ["Busy"], ["Busy", "Waiting"], []])
    def test_conditions_hold_together(
        self, store: StateStore, filled: dict[str, tuple[Made, set[str]]], indexes: list[str] | None
    ) -> None:
        for (condition, match), org in product(CONDITIONS.items(), (None, "red", "green")):
            expected = self.expected(filled, match, org, indexes)
            for limit in (1, 5, 100):
                found = walk(store, limit=limit, kind=FOUND, org=org, indexes=indexes, match=match)
                assert found == expected, (condition, org, limit)

    def expected(
        self,
        filled: dict[str, tuple[Made, set[str]]],
        match: Match,
        org: str | None,
        indexes: list[str] | None,
    ) -> list[str]:
        return [
            name
            for name, (record, tags) in reversed(filled.items())
            if org in (None, record.key.org)
            and (indexes is None or record.status.phase in indexes)
            and match.owner in (None, record.owner)
            and tags.issuperset(match.tags)
            and (match.name or name) == name
            and name.startswith(match.prefix or "")
            and (match.created_from is None or record.created_at >= match.created_from)
            and (match.created_before is None or record.created_at < match.created_before)
            and (record.delete_requested_at is not None or not match.deleting)
        ]

    def test_tags_follow_the_spec(self, store: StateStore) -> None:
        made = make(store, kind=FOUND, spec=SampleSpec("x", tags={"colour": "red", "size": "1"}))
        store.change_spec(
            FOUND,
            made.key.uid,
            lambda spec: replace(spec, tags={"size": "1", "new": "a=b c"}),
            now=LATER,
        )

        def found(*tags: str) -> bool:
            return bool(store.list(FOUND, org="red", match=Match(tags=tags)).items)

        assert found("size=1", "new=a=b c")
        assert not found("colour=red")

    def test_tags_of_a_status_stay(self, store: StateStore) -> None:
        made = make(store, kind=FOUND)
        for note in ("one", "two", "two"):
            made = store.commit_status(
                FOUND,
                made.key.uid,
                Progress(note=note),
                expected_revision=made.revision,
                fence=None,
                now=LATER,
            )
        assert names(store.list(FOUND, match=Match(tags=("note=one", "note=two"))).items) == ["one"]

    def test_what_is_deleted_is_not_found(self, store: StateStore) -> None:
        made = make(store, kind=FOUND, spec=SampleSpec("x", tags={"colour": "red"}))
        store.delete(FOUND, made.key.uid, fence=None)
        assert store.list(FOUND, match=Match(tags=("colour=red",))).items == ()
        again = make(store, kind=FOUND, spec=SampleSpec("x", tags={"colour": "red"}))
        assert [line.key.uid for line in store.list(FOUND, match=Match(owner="ann")).items] == [
            again.key.uid
        ]

    def test_pages_of_what_is_found_stay_put_while_others_write(self, store: StateStore) -> None:
        made = {name: make(store, name, kind=FOUND) for name in "abcdef"}
        mine = Match(owner="ann")
        first = store.list(FOUND, org="red", match=mine, limit=2)
        make(store, "newer", kind=FOUND)
        store.delete(FOUND, made["e"].key.uid, fence=None)
        second = store.list(FOUND, org="red", match=mine, limit=2, after=first.next)
        third = store.list(FOUND, org="red", match=mine, limit=2, after=second.next)
        assert [names(page.items) for page in (first, second, third)] == [
            ["f", "e"],
            ["d", "c"],
            ["b", "a"],
        ]
        assert third.next is None

    def test_times_at_the_ends_of_all_times(self, store: StateStore) -> None:
        """The clock has gone back once, which widens what is looked through."""
        make(store, "first", now=NOW + timedelta(days=3))
        make(store, "second", now=NOW)
        first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
        for start, end, found in (
            (first, last, 2),
            (last, None, 0),
            (None, first, 0),
            (first, first, 0),
            (None, last, 2),
        ):
            match = Match(created_from=start, created_before=end)
            assert len(store.list(SAMPLE, match=match).items) == found

"""Lists: newest first, filtered, in pages that stay put while others write."""

from __future__ import annotations

from itertools import product

import pytest

from cloud_ml.domain.records import Summary
from cloud_ml.errors import InvalidRequest
from cloud_ml.state.base import StateStore
from cloud_ml.testing.state.samples import LATER, NOW, OTHER, WISH, Phase, commit, make


def names(items: object) -> list[str]:
    assert isinstance(items, tuple)
    return [item.key.name for item in items]


def walk(store: StateStore, *, limit: int, **filters: object) -> list[str]:
    """All names of a list, page by page."""
    found: list[str] = []
    after: int | None = None
    while True:
        page = store.list(WISH, after=after, limit=limit, **filters)  # type: ignore[arg-type]
        assert len(page.items) <= limit
        found += names(page.items)
        if page.next is None:
            return found
        after = page.next


class ListContract:
    def test_an_empty_store_lists_nothing(self, store: StateStore) -> None:
        page = store.list(WISH)
        assert page.items == ()
        assert page.next is None

    def test_a_line_says_what_a_list_shows(self, store: StateStore) -> None:
        made = make(store, title="My bike", phase=Phase.BUSY)
        commit(store, made, Phase.DONE)
        (line,) = store.list(WISH).items
        assert line == Summary(made.key, "ann", line.number, "Done", NOW, LATER, deleting=False, title="My bike")

    def test_newest_first_whatever_changes_later(self, store: StateStore) -> None:
        made = [make(store, name) for name in ("a", "b", "c")]
        commit(store, made[0])
        store.change_spec(WISH, made[1].key.uid, lambda spec: spec, now=LATER)
        lines = store.list(WISH).items
        assert names(lines) == ["c", "b", "a"]
        assert [line.number for line in lines] == sorted((line.number for line in lines), reverse=True)

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
        first = store.list(WISH, limit=2)
        assert first.next is not None
        assert store.list(WISH, limit=2, after=first.next).next is None

    def test_pages_stay_put_while_others_write(self, store: StateStore) -> None:
        made = {name: make(store, name) for name in "abcdef"}
        first = store.list(WISH, limit=2)
        make(store, "newer")
        store.delete(WISH, made["e"].key.uid, fence=None)  # the very record the cursor stands on
        commit(store, made["c"])
        second = store.list(WISH, limit=2, after=first.next)
        third = store.list(WISH, limit=2, after=second.next)
        assert [names(page.items) for page in (first, second, third)] == [["f", "e"], ["d", "c"], ["b", "a"]]

    def test_a_record_moves_to_the_list_of_its_new_index(self, store: StateStore) -> None:
        made = make(store)
        commit(store, made, Phase.DONE)
        assert store.list(WISH, indexes=["Waiting"]).items == ()
        assert names(store.list(WISH, org="red", indexes=["Done"]).items) == ["one"]

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    def test_a_limit_out_of_range_is_refused(self, store: StateStore, limit: int) -> None:
        for page in (
            lambda: store.list(WISH, limit=limit),
            lambda: store.events("x", limit=limit),
            lambda: store.changes(0, limit=limit),
        ):
            with pytest.raises(InvalidRequest) as refused:
                page()
            assert (refused.value.field, refused.value.value) == ("limit", limit)

    def test_too_many_index_values_are_refused(self, store: StateStore) -> None:
        assert store.list(WISH, indexes=[str(number) for number in range(100)]).items == ()
        with pytest.raises(InvalidRequest) as refused:
            store.list(WISH, indexes=[str(number) for number in range(101)])
        assert refused.value.field == "indexes"

"""Lists: in byte order, in pages, folded at folders; and how much there is."""

from __future__ import annotations

import pytest

from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import Amount
from cloud_ml.testing.objects.samples import BUCKET, IN_BYTE_ORDER, fill, keys


class ListContract:
    def test_keys_come_in_byte_order(self, store: ObjectStore) -> None:
        assert sorted(IN_BYTE_ORDER, key=str.encode) == IN_BYTE_ORDER
        fill(store, *reversed(IN_BYTE_ORDER))
        assert keys(store.list(BUCKET)) == IN_BYTE_ORDER

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 11, 12, 13])
    @pytest.mark.parametrize("delimiter", [False, True])
    def test_pages_add_up_to_the_whole(
        self, store: ObjectStore, limit: int, delimiter: bool
    ) -> None:
        fill(store, *IN_BYTE_ORDER)
        whole = store.list(BUCKET, delimiter=delimiter)
        assert whole.next is None
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = store.list(BUCKET, delimiter=delimiter, after=after, limit=limit)
            found = sorted([*keys(page), *page.folders])
            assert len(found) <= limit
            seen += found
            after = page.next
        assert seen == sorted([*keys(whole), *whole.folders])

    @pytest.mark.parametrize(
        "prefix",
        ["", "a", "a/", "a/c", "a/c/", "a/c/d", "b/", "日", "日本/", "q", "a//", "/", "../"],
    )
    def test_a_prefix_need_not_end_at_a_folder(self, store: ObjectStore, prefix: str) -> None:
        fill(store, *IN_BYTE_ORDER)
        assert keys(store.list(BUCKET, prefix)) == [
            key for key in IN_BYTE_ORDER if key.startswith(prefix)
        ]

    @pytest.mark.parametrize(
        "after",
        [
            "",
            "a",
            "a/",
            "a/b",
            "a/c",
            "a/c/",
            "a/c/d",
            "a/c/e",
            "a/z",
            "a0",
            "b",
            "zz",
            "\U0010ffff",
        ],
    )
    def test_what_comes_after(self, store: ObjectStore, after: str) -> None:
        fill(store, *IN_BYTE_ORDER)
        assert keys(store.list(BUCKET, after=after)) == [
            key for key in IN_BYTE_ORDER if key > after
        ]

    def test_a_delimiter_folds_what_lies_deeper(self, store: ObjectStore) -> None:
        fill(store, *IN_BYTE_ORDER)
        top = store.list(BUCKET, delimiter=True)
        assert list(top.folders) == ["a/", "b/", "日本/"]
        assert keys(top) == [key for key in IN_BYTE_ORDER if "/" not in key]
        inner = store.list(BUCKET, "a/", delimiter=True)
        assert (keys(inner), list(inner.folders)) == (["a/b"], ["a/c/"])
        part = store.list(BUCKET, "a", delimiter=True, after="a.txt")
        assert (keys(part), list(part.folders)) == (["a0", "aa"], ["a/"])

    def test_a_page_is_not_followed_by_an_empty_one(self, store: ObjectStore) -> None:
        fill(store, "a", "b")
        assert store.list(BUCKET, limit=2).next is None
        assert store.list(BUCKET, limit=1).next == "a"

    def test_a_limit_below_one_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidRequest, match="limit"):
            store.list(BUCKET, limit=0)

    def test_a_listed_object_is_what_its_head_says(self, store: ObjectStore) -> None:
        fill(store, "a/b")
        assert list(store.list(BUCKET).objects) == [store.head(BUCKET, "a/b")]

    def test_what_is_stored_is_counted(self, store: ObjectStore) -> None:
        assert store.amount(BUCKET) == Amount(0, 0)
        fill(store, "a/1", "a/22", "ab", "b")
        assert store.amount(BUCKET) == Amount(4, 10)
        assert store.amount(BUCKET, "a/") == Amount(2, 7)
        assert store.amount(BUCKET, "a") == Amount(3, 9)
        assert store.amount(BUCKET, "nothing") == Amount(0, 0)
        with pytest.raises(NotFound):
            store.amount("absent")

    def test_counting_stops_when_told_to(self, store: ObjectStore) -> None:
        fill(store, "a", "b")
        assert not store.amount(BUCKET, stop=lambda: True).complete

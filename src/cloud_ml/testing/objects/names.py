"""Keys: which there can be, and that none is an object and a folder at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.objects.base import ObjectStore
from cloud_ml.testing.objects.samples import (
    BUCKET,
    IMPOSSIBLE_KEYS,
    IN_BYTE_ORDER,
    LONGEST_KEYS,
    fill,
    keys,
)


class KeyContract:
    @pytest.mark.parametrize("name", IMPOSSIBLE_KEYS)
    def test_keys_that_can_be_no_path_are_refused_everywhere(
        self, store: ObjectStore, name: str
    ) -> None:
        uses: list[Callable[[], object]] = [
            lambda: store.head(BUCKET, name),
            lambda: store.read(BUCKET, name),
            lambda: store.writer(BUCKET, name),
            lambda: store.delete(BUCKET, name),
        ]
        for use in uses:
            with pytest.raises(InvalidRequest) as caught:
                use()
            assert caught.value.field == "key"

    @pytest.mark.parametrize(
        "name", [*LONGEST_KEYS, *IN_BYTE_ORDER, "~", " ", "-rf", "a:b", "%2e%2e", "...", "é"]
    )
    def test_all_other_keys_are_possible(self, store: ObjectStore, name: str) -> None:
        store.put(BUCKET, name, b"content")
        assert store.get(BUCKET, name) == b"content"
        assert keys(store.list(BUCKET)) == [name]
        assert store.delete(BUCKET, name)
        store.delete_bucket(BUCKET)

    def test_composed_and_decomposed_letters_are_two_keys(self, store: ObjectStore) -> None:
        fill(store, "é", "e\u0301")
        assert keys(store.list(BUCKET)) == ["e\u0301", "é"]

    @pytest.mark.parametrize(
        ("first", "second"), [("a", "a/b"), ("a", "a/b/c"), ("a/b", "a"), ("a/b/c", "a")]
    )
    def test_nothing_is_an_object_and_a_folder(
        self, store: ObjectStore, first: str, second: str
    ) -> None:
        fill(store, first)
        with pytest.raises(Conflict) as caught:
            store.writer(BUCKET, second)
        assert caught.value.field == "key"
        assert keys(store.list(BUCKET)) == [first]

    @pytest.mark.parametrize("only_if_absent", [False, True])
    @pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
    def test_nothing_becomes_both_during_an_upload(
        self, store: ObjectStore, first: str, second: str, only_if_absent: bool
    ) -> None:
        with store.writer(BUCKET, second, only_if_absent=only_if_absent) as upload:
            fill(store, first)
            with pytest.raises(Conflict):
                upload.commit()
        assert keys(store.list(BUCKET)) == [first]

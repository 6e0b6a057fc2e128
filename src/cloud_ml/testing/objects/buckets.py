"""Buckets: their names, their beginning and their end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from cloud_ml.objects.base import ObjectStore
from cloud_ml.testing.objects.samples import BUCKET, fill, keys


class BucketContract:
    def test_a_bucket_that_exists_may_be_made_again(self, store: ObjectStore) -> None:
        fill(store, "a")
        store.create_bucket(BUCKET, tenant=7)
        assert keys(store.list(BUCKET)) == ["a"]

    def test_buckets_are_listed_sorted(self, store: ObjectStore) -> None:
        store.create_bucket("zebra")
        store.create_bucket("a.b-c")
        assert list(store.buckets()) == ["a.b-c", BUCKET, "zebra"]

    @pytest.mark.parametrize("name", ["", "ab", "..", "a/b", ".hidden", "Data", "a..b", "x" * 64, "ab\n"])
    def test_impossible_buckets_are_refused_and_never_found(self, store: ObjectStore, name: str) -> None:
        with pytest.raises(InvalidRequest, match="bucket"):
            store.create_bucket(name)
        with pytest.raises(NotFound):
            store.list(name)

    def test_a_bucket_with_objects_stays(self, store: ObjectStore) -> None:
        fill(store, "folder/a")
        with pytest.raises(Conflict, match="holds"):
            store.delete_bucket(BUCKET)
        assert store.get(BUCKET, "folder/a") == b"folder/a"

    def test_deleting_a_bucket_twice_is_success(self, store: ObjectStore) -> None:
        store.delete_bucket(BUCKET)
        store.delete_bucket(BUCKET)
        assert list(store.buckets()) == []

    @pytest.mark.parametrize(
        "use",
        [
            lambda store: store.head("absent", "a"),
            lambda store: store.read("absent", "a"),
            lambda store: store.writer("absent", "a"),
            lambda store: store.list("absent"),
            lambda store: store.delete("absent", "a"),
        ],
    )
    def test_an_absent_bucket_is_not_found(self, store: ObjectStore, use: Callable[[ObjectStore], object]) -> None:
        with pytest.raises(NotFound, match="absent"):
            use(store)

    def test_an_upload_into_a_bucket_that_is_gone_is_not_found(self, store: ObjectStore) -> None:
        with store.writer(BUCKET, "a") as upload:
            store.delete_bucket(BUCKET)
            with pytest.raises(NotFound):
                upload.commit()
        assert list(store.buckets()) == []

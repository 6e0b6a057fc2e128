"""Buckets: their names, their beginning and their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.multipart import Declared
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

    @pytest.mark.parametrize(
        "name", ["", "ab", "..", "a/b", ".hidden", "Data", "a..b", "x" * 64, "ab\n"]
    )
    def test_impossible_buckets_are_refused_and_never_found(
        self, store: ObjectStore, name: str
    ) -> None:
        with pytest.raises(InvalidRequest, match="bucket"):
            store.create_bucket(name)
        with pytest.raises(NotFound):
            store.list(name)

    def test_a_bucket_with_objects_stays(self, store: ObjectStore) -> None:
        fill(store, "folder/a")
        with pytest.raises(Conflict, match="holds"):
            store.delete_bucket(BUCKET)
        assert store.get(BUCKET, "folder/a") == b"folder/a"

    def test_a_bucket_with_objects_goes_with_force_and_its_name_is_free(
        self, store: ObjectStore
    ) -> None:
        fill(store, "folder/a", "b")
        for _ in range(2):
            store.delete_bucket(BUCKET, force=True)
            store.reclaim()
            assert list(store.buckets()) == []
        store.create_bucket(BUCKET)
        assert keys(store.list(BUCKET)) == []

    def test_a_folder_goes_with_everything_in_it_and_nothing_else_does(
        self, store: ObjectStore
    ) -> None:
        fill(store, "a/b/c", "a/b/d/e", "a/bc", "a/b2/x")
        for _ in range(2):
            store.delete_folder(BUCKET, "a/b")
            assert keys(store.list(BUCKET)) == ["a/b2/x", "a/bc"]
        store.delete_folder(BUCKET, "absent/folder")
        with pytest.raises(NotFound):
            store.delete_folder("absent", "a")

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
    def test_an_absent_bucket_is_not_found(
        self, store: ObjectStore, use: Callable[[ObjectStore], object]
    ) -> None:
        with pytest.raises(NotFound, match="absent"):
            use(store)

    def test_a_bucket_is_there_until_it_is_deleted(self, store: ObjectStore) -> None:
        assert store.has_bucket(BUCKET)
        store.delete_bucket(BUCKET)
        assert not store.has_bucket(BUCKET)

    @pytest.mark.parametrize("name", ["absent", "..", "a/b", ""])
    def test_other_names_are_of_no_bucket(self, store: ObjectStore, name: str) -> None:
        assert not store.has_bucket(name)

    def test_an_upload_into_a_bucket_that_is_gone_is_not_found(self, store: ObjectStore) -> None:
        with store.writer(BUCKET, "a") as upload:
            store.delete_bucket(BUCKET)
            with pytest.raises(NotFound):
                upload.commit()
        assert list(store.buckets()) == []

    def test_an_upload_does_not_end_in_another_bucket_of_the_same_name(
        self, store: ObjectStore
    ) -> None:
        """It may be another organisation's by then."""
        with store.writer(BUCKET, "a") as upload:
            upload.write(b"theirs")
            store.delete_bucket(BUCKET)
            store.create_bucket(BUCKET, new=True)
            with pytest.raises(NotFound):
                upload.commit()
        assert keys(store.list(BUCKET)) == []

    def test_a_new_bucket_inherits_nothing(self, store: ObjectStore) -> None:
        fill(store, "folder/a")
        begun = store.multipart.begin("0" * 32, BUCKET, "b", Declared())
        store.create_bucket(BUCKET, new=True)
        assert keys(store.list(BUCKET)) == []
        assert store.multipart.all(BUCKET) == []
        with pytest.raises(NotFound):
            store.multipart.get(BUCKET, begun.id)

    def test_what_nobody_owns_is_set_aside(self, store: ObjectStore) -> None:
        assert store.set_aside(BUCKET) == ""
        assert store.set_aside(BUCKET) == ""
        store.create_bucket(BUCKET)
        fill(store, "folder/a")
        assert store.set_aside(BUCKET)
        assert list(store.buckets()) == []

    def test_of_many_at_once_one_makes_or_removes_a_bucket(self, store: ObjectStore) -> None:
        inside: list[int] = []
        most: list[int] = []

        def enter(number: int) -> None:
            for _ in range(20):
                with store.bucket_lock(BUCKET):
                    inside.append(number)
                    most.append(len(inside))
                    time.sleep(0)  # let others try
                    inside.remove(number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(enter, range(4)))
        assert (len(most), max(most)) == (80, 1)

"""Uploads: whole or not at all, also with many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from cloud_ml.errors import AlreadyExists
from cloud_ml.objects.base import ObjectStore
from cloud_ml.testing.objects.samples import BUCKET, fill, keys


class UploadContract:
    def test_an_upload_is_invisible_until_it_is_committed(self, store: ObjectStore) -> None:
        fill(store, "old")
        with store.writer(BUCKET, "old") as over, store.writer(BUCKET, "folder/new") as upload:
            over.write(b"half")
            upload.write(b"half")
            assert store.get(BUCKET, "old") == b"old"
            assert keys(store.list(BUCKET)) == ["old"]
            assert list(store.list(BUCKET, delimiter=True).folders) == []
            assert upload.commit().key == "folder/new"
        assert keys(store.list(BUCKET)) == ["folder/new", "old"]

    def test_an_upload_without_commit_leaves_no_trace(self, store: ObjectStore) -> None:
        def fail() -> None:
            with store.writer(BUCKET, "folder/a") as upload:
                upload.write(b"half")
                raise RuntimeError("the client is gone")

        with pytest.raises(RuntimeError):
            fail()
        upload = store.writer(BUCKET, "b")
        upload.abort()
        upload.abort()
        assert keys(store.list(BUCKET)) == []
        store.delete_bucket(BUCKET)

    def test_uploads_may_be_committed_together_and_made_durable_later(
        self, store: ObjectStore
    ) -> None:
        writers = [store.writer(BUCKET, key) for key in ("a", "folder/b")]
        for writer in writers:
            writer.write(b"content")
        assert [getattr(one, "key", one) for one in store.commit_all(writers, durable=False)] == [
            "a",
            "folder/b",
        ]
        assert store.get(BUCKET, "folder/b") == b"content"
        store.sync()
        assert keys(store.list(BUCKET)) == ["a", "folder/b"]

    def test_an_upload_ends_once(self, store: ObjectStore) -> None:
        with store.writer(BUCKET, "a") as upload:
            upload.commit()
            upload.abort()
            with pytest.raises(ValueError, match="over"):
                upload.write(b"more")
            with pytest.raises(ValueError, match="over"):
                upload.commit()
        assert store.get(BUCKET, "a") == b""

    def test_only_if_absent_never_replaces(self, store: ObjectStore) -> None:
        store.put(BUCKET, "a/b", b"first", only_if_absent=True)
        with pytest.raises(AlreadyExists, match="a/b"):
            store.put(BUCKET, "a/b", b"second", only_if_absent=True)
        assert store.get(BUCKET, "a/b") == b"first"

    def test_of_many_that_want_to_be_first_one_is(self, store: ObjectStore) -> None:
        barrier = Barrier(8)

        def attempt(number: int) -> bool:
            barrier.wait()
            try:
                store.put(BUCKET, "folder/a", b"%d" % number, only_if_absent=True)
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(attempt, range(8)))
        assert won.count(True) == 1
        assert store.get(BUCKET, "folder/a") == b"%d" % won.index(True)

    def test_writers_and_readers_at_once_see_whole_versions(self, store: ObjectStore) -> None:
        store.put(BUCKET, "a", b"0" * 50_000)

        def write(number: int) -> None:
            for _ in range(10):
                store.put(BUCKET, "a", b"%d" % number * 50_000)

        def read() -> set[bytes]:
            return {store.get(BUCKET, "a") for _ in range(30)}

        with ThreadPoolExecutor(6) as pool:
            writes = [pool.submit(write, number) for number in range(3)]
            reads = [pool.submit(read) for _ in range(3)]
            for done in writes:
                done.result()
            seen = set().union(*(done.result() for done in reads))
        assert seen <= {b"%d" % number * 50_000 for number in range(3)}

    def test_putting_and_deleting_in_one_folder_at_once(self, store: ObjectStore) -> None:
        def churn(number: int) -> None:
            for _ in range(20):
                store.put(BUCKET, f"deep/er/{number}", b"x")
                assert store.delete(BUCKET, f"deep/er/{number}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(churn, range(4)))
        assert keys(store.list(BUCKET)) == []

"""One object: what was put is got, whole or in part, until it is replaced or deleted."""

from __future__ import annotations

import pytest

from cloud_ml.errors import InvalidRequest, NotFound, PreconditionFailed
from cloud_ml.objects.base import ObjectStore
from cloud_ml.testing.objects.samples import BUCKET, fill, keys


class ContentContract:
    def test_what_was_put_is_got(self, store: ObjectStore) -> None:
        written = store.put(BUCKET, "folder/a", b"hello")
        assert (written.bucket, written.key, written.size) == (BUCKET, "folder/a", 5)
        assert written.modified.tzinfo is not None
        assert store.head(BUCKET, "folder/a") == written
        info, chunks = store.read(BUCKET, "folder/a")
        assert (info, b"".join(chunks)) == (written, b"hello")

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        assert store.put(BUCKET, "empty", b"").size == 0
        assert store.get(BUCKET, "empty") == b""

    def test_a_large_object_comes_in_chunks(self, store: ObjectStore) -> None:
        pieces = [bytes([number]) * 100_000 for number in range(20)]
        with store.writer(BUCKET, "large") as upload:
            for piece in pieces:
                upload.write(piece)
            assert upload.commit().size == 2_000_000
        assert store.get(BUCKET, "large") == b"".join(pieces)

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 3, b"012"),
            (7, None, b"789"),
            (7, 99, b"789"),
            (3, 0, b""),
            (10, None, b""),
            (99, 5, b""),
        ],
    )
    def test_a_range_is_read(
        self, store: ObjectStore, start: int, length: int | None, expected: bytes
    ) -> None:
        store.put(BUCKET, "digits", b"0123456789")
        info, chunks = store.read(BUCKET, "digits", start=start, length=length)
        assert b"".join(chunks) == expected
        assert info.size == 10

    @pytest.mark.parametrize(("start", "length"), [(-1, None), (0, -1)])
    def test_a_negative_range_is_refused(
        self, store: ObjectStore, start: int, length: int | None
    ) -> None:
        fill(store, "a")
        with pytest.raises(InvalidRequest, match="-1"):
            store.read(BUCKET, "a", start=start, length=length)

    def test_what_is_absent(self, store: ObjectStore) -> None:
        fill(store, "folder/a")
        for name in ("b", "folder", "folder/b", "folder/a/b", "absent/b"):
            assert store.head(BUCKET, name) is None
            assert store.delete(BUCKET, name) is False
            with pytest.raises(NotFound, match=name):
                store.read(BUCKET, name)
        assert keys(store.list(BUCKET)) == ["folder/a"]

    def test_a_new_version_replaces_the_old_one_with_another_etag(self, store: ObjectStore) -> None:
        etags = {store.put(BUCKET, "a", content).etag for content in (b"1", b"2", b"2", b"33")}
        assert len(etags) >= 3
        assert store.get(BUCKET, "a") == b"33"

    def test_a_read_under_way_stays_with_its_version(self, store: ObjectStore) -> None:
        old = b"old" * 300_000
        store.put(BUCKET, "a", old)
        _, chunks = store.read(BUCKET, "a")
        start = next(chunks)
        store.put(BUCKET, "a", b"new")
        assert start + b"".join(chunks) == old
        _, chunks = store.read(BUCKET, "a")
        store.delete(BUCKET, "a")
        assert b"".join(chunks) == b"new"

    def test_a_deleted_object_is_gone_once(self, store: ObjectStore) -> None:
        fill(store, "a")
        assert store.delete(BUCKET, "a") is True
        assert store.delete(BUCKET, "a") is False
        assert store.head(BUCKET, "a") is None

    def test_only_the_version_that_is_named_is_deleted(self, store: ObjectStore) -> None:
        old = store.put(BUCKET, "d/a", b"old").etag
        new = store.put(BUCKET, "d/a", b"new").etag
        with pytest.raises(PreconditionFailed, match="d/a"):
            store.delete(BUCKET, "d/a", etag=old)
        assert store.get(BUCKET, "d/a") == b"new"
        assert store.delete(BUCKET, "d/a", etag=new) is True
        assert store.delete(BUCKET, "d/a", etag=new) is False
        assert store.head(BUCKET, "d/a") is None

    def test_a_folder_ends_with_its_last_object(self, store: ObjectStore) -> None:
        fill(store, "a/b/c", "a/d")
        store.delete(BUCKET, "a/b/c")
        assert list(store.list(BUCKET, "a/", delimiter=True).folders) == []
        store.delete(BUCKET, "a/d")
        assert list(store.list(BUCKET, delimiter=True).folders) == []
        fill(store, "a")  # the name is free for an object again
        store.delete(BUCKET, "a")
        store.delete_bucket(BUCKET)

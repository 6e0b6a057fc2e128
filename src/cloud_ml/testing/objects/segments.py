"""The contract of uploads that are appended segment by segment, in code; a part of
``ObjectStoreContract``.
"""

from __future__ import annotations

import hashlib

import pytest

from cloud_ml.errors import AlreadyExists, Conflict, NotFound, Unavailable
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.multipart import Declared, Received
from cloud_ml.testing.objects.samples import BUCKET

SEGMENTED, OTHER = "a" * 32, "b" * 32


def append(store: ObjectStore, offset: int, content: bytes, upload: str = SEGMENTED) -> Received:
    """Send a segment in two pieces."""
    with store.multipart.append(BUCKET, upload, offset) as segment:
        segment.write(content[:1])
        segment.write(content[1:])
        return segment.commit()


class SegmentContract:
    """Everything a store promises of uploads in segments. Expects the bucket ``data``."""

    def test_segments_become_an_object_at_once(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "folder/a", Declared(size=6))
        assert store.multipart.received(BUCKET, SEGMENTED) == Received()
        assert append(store, 0, b"abc") == Received(3, hashlib.sha256(b"abc").hexdigest())
        whole = append(store, 3, b"def")
        assert whole == Received(6, hashlib.sha256(b"abcdef").hexdigest())
        assert store.multipart.received(BUCKET, SEGMENTED) == whole
        assert (store.multipart.held([BUCKET]), store.multipart.size(BUCKET, SEGMENTED)) == (6, 6)
        assert (store.head(BUCKET, "folder/a"), store.list(BUCKET).objects) == (None, [])
        joined = store.multipart.join(BUCKET, SEGMENTED)
        assert (joined.key, joined.size, joined.sha256) == ("folder/a", 6, whole.sha256)
        assert store.get(BUCKET, "folder/a") == b"abcdef"
        assert store.head(BUCKET, "folder/a") == joined
        assert list(store.multipart.all()) == []
        with pytest.raises(NotFound):
            append(store, 6, b"x")

    def test_a_segment_knows_the_digest_of_all_before_it(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        append(store, 0, b"abc")
        with store.multipart.append(BUCKET, SEGMENTED, 3) as segment:
            segment.write(b"def")
            assert segment.sha256 == hashlib.sha256(b"abcdef").hexdigest()

    @pytest.mark.parametrize("offset", [0, 2, 4])
    def test_a_segment_begins_where_the_last_one_ended(
        self, store: ObjectStore, offset: int
    ) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        append(store, 0, b"abc")
        with pytest.raises(Conflict, match="3 bytes were received"):
            append(store, offset, b"def")
        append(store, 3, b"def")
        store.multipart.join(BUCKET, SEGMENTED)
        assert store.get(BUCKET, "a") == b"abcdef"

    def test_a_segment_that_breaks_off_leaves_nothing(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        append(store, 0, b"abc")
        with store.multipart.append(BUCKET, SEGMENTED, 3) as segment:
            segment.write(b"a long one that is lost")
        assert store.multipart.received(BUCKET, SEGMENTED).size == 3
        append(store, 3, b"d")
        assert store.multipart.join(BUCKET, SEGMENTED).size == 4
        assert store.get(BUCKET, "a") == b"abcd"

    def test_one_segment_at_a_time(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        store.multipart.begin(OTHER, BUCKET, "a", Declared())
        with store.multipart.append(BUCKET, SEGMENTED, 0) as first:
            first.write(b"abc")
            with pytest.raises(Unavailable):
                append(store, 0, b"xyz")
            append(store, 0, b"of another upload", OTHER)
            first.commit()
        append(store, 3, b"def")
        store.multipart.join(BUCKET, SEGMENTED)
        assert store.get(BUCKET, "a") == b"abcdef"

    def test_nothing_is_joined_while_a_segment_is_on_its_way(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        append(store, 0, b"abc")
        with store.multipart.append(BUCKET, SEGMENTED, 3) as late:
            late.write(b"def")
            with pytest.raises(Unavailable):
                store.multipart.join(BUCKET, SEGMENTED)
            late.commit()
        assert store.multipart.join(BUCKET, SEGMENTED).size == 6

    def test_parts_and_segments_do_not_mix(self, store: ObjectStore) -> None:
        for upload in (SEGMENTED, OTHER):
            store.multipart.begin(upload, BUCKET, "a", Declared())
        append(store, 0, b"abc")
        with pytest.raises(Conflict, match="not both"):
            store.multipart.writer(BUCKET, SEGMENTED, 1)
        with pytest.raises(Conflict, match="not both"):
            store.multipart.join(BUCKET, SEGMENTED, [])
        with store.multipart.writer(BUCKET, OTHER, 1) as part:
            part.write(b"x")
            part.commit()
        with pytest.raises(Conflict, match="not both"):
            store.multipart.append(BUCKET, OTHER, 0)

    @pytest.mark.parametrize(
        "declared", [Declared(size=4), Declared(sha256=hashlib.sha256(b"x").hexdigest())]
    )
    def test_another_whole_of_segments_than_was_declared_changes_nothing(
        self, store: ObjectStore, declared: Declared
    ) -> None:
        store.put(BUCKET, "a", b"old")
        store.multipart.begin(SEGMENTED, BUCKET, "a", declared)
        append(store, 0, b"new")
        with pytest.raises(Conflict):
            store.multipart.join(BUCKET, SEGMENTED)
        assert store.get(BUCKET, "a") == b"old"
        assert store.multipart.received(BUCKET, SEGMENTED).size == 3

    def test_segments_that_may_not_replace_an_object_are_kept(self, store: ObjectStore) -> None:
        store.put(BUCKET, "a", b"old")
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        append(store, 0, b"new")
        with pytest.raises(AlreadyExists):
            store.multipart.join(BUCKET, SEGMENTED, only_if_absent=True)
        assert store.get(BUCKET, "a") == b"old"
        append(store, 3, b"er")
        store.multipart.join(BUCKET, SEGMENTED)
        assert store.get(BUCKET, "a") == b"newer"

    def test_a_segment_of_an_upload_that_was_given_up_is_refused(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        with store.multipart.append(BUCKET, SEGMENTED, 0) as late:
            late.write(b"x")
            store.multipart.drop(BUCKET, SEGMENTED)
            with pytest.raises(NotFound):
                late.commit()
        assert list(store.multipart.all()) == []

    def test_a_segment_of_an_upload_that_began_again_is_refused(self, store: ObjectStore) -> None:
        store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
        with store.multipart.append(BUCKET, SEGMENTED, 0) as late:
            late.write(b"of the first")
            store.multipart.drop(BUCKET, SEGMENTED)
            store.multipart.begin(SEGMENTED, BUCKET, "a", Declared())
            with pytest.raises(NotFound):
                late.commit()
        assert store.multipart.received(BUCKET, SEGMENTED).size == 0
        append(store, 0, b"of the second")
        store.multipart.join(BUCKET, SEGMENTED)
        assert store.get(BUCKET, "a") == b"of the second"

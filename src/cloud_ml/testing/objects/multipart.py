"""The contract of uploads in parts, in code; a part of ``ObjectStoreContract``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.multipart import PARTS, Declared, Part
from cloud_ml.testing.objects.samples import BUCKET

ID, OTHER = "0" * 32, "f" * 32
NOTHING = Declared()


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def put(store: ObjectStore, number: int, content: bytes, upload: str = ID) -> Part:
    """Send a part in two pieces."""
    with store.multipart.writer(BUCKET, upload, number) as part:
        part.write(content[:1])
        part.write(content[1:])
        return part.commit()


class MultipartContract:
    """Everything a store promises of uploads in parts. Expects the bucket ``data``."""

    def test_parts_become_an_object_at_once(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "folder/a", NOTHING)
        assert put(store, 2, b"def") == Part(2, 3, digest(b"def"))
        put(store, 1, b"abc")
        assert (store.head(BUCKET, "folder/a"), store.list(BUCKET).objects) == (None, [])
        assert [part.number for part in store.multipart.parts(BUCKET, ID)] == [1, 2]
        joined = store.multipart.join(BUCKET, ID)
        assert (joined.key, joined.size, joined.sha256) == ("folder/a", 6, digest(b"abcdef"))
        assert store.get(BUCKET, "folder/a") == b"abcdef"
        assert store.head(BUCKET, "folder/a") == joined
        assert list(store.multipart.all()) == []
        with pytest.raises(NotFound):
            store.multipart.join(BUCKET, ID)

    def test_no_parts_make_an_empty_object(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        assert store.multipart.join(BUCKET, ID).size == 0

    def test_to_begin_again_goes_on(self, store: ObjectStore) -> None:
        declared = Declared(6, digest(b"abcdef"), 3)
        store.multipart.begin(ID, BUCKET, "a", declared)
        put(store, 1, b"abc")
        again = store.multipart.begin(ID, BUCKET, "a", declared)
        assert (again.key, again.declared) == ("a", declared)
        assert [part.size for part in store.multipart.parts(BUCKET, ID)] == [3]
        with pytest.raises(Conflict):
            store.multipart.begin(ID, BUCKET, "b", declared)

    def test_a_part_may_be_sent_again(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        put(store, 1, b"wrong")
        put(store, 1, b"right")
        put(store, 1, b"right")
        assert list(store.multipart.parts(BUCKET, ID)) == [Part(1, 5, digest(b"right"))]
        store.multipart.join(BUCKET, ID)
        assert store.get(BUCKET, "a") == b"right"

    def test_a_part_that_breaks_off_leaves_the_older_one(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        put(store, 1, b"kept")
        with store.multipart.writer(BUCKET, ID, 1) as part:
            part.write(b"half")
        assert [part.sha256 for part in store.multipart.parts(BUCKET, ID)] == [digest(b"kept")]

    @pytest.mark.parametrize(
        ("declared", "chosen", "message"),
        [
            (NOTHING, [Part(1, 3, digest(b"abc"))], "numbered|not arrived"),
            (NOTHING, None, "numbered"),
            (NOTHING, [Part(2, 3, digest(b"abc")), Part(1, 3, digest(b"abc"))], "numbered"),
        ],
    )
    def test_a_gap_is_refused_and_may_be_filled(
        self, store: ObjectStore, declared: Declared, chosen: list[Part] | None, message: str
    ) -> None:
        store.multipart.begin(ID, BUCKET, "a", declared)
        put(store, 2, b"def")
        with pytest.raises(Conflict, match=message):
            store.multipart.join(BUCKET, ID, chosen)
        put(store, 1, b"abc")
        assert store.multipart.join(BUCKET, ID).size == 6

    @pytest.mark.parametrize(
        ("declared", "message"),
        [(Declared(size=4), "4 were declared"), (Declared(sha256=digest(b"x")), "SHA-256")],
    )
    def test_another_whole_than_was_declared_changes_nothing(
        self, store: ObjectStore, declared: Declared, message: str
    ) -> None:
        store.put(BUCKET, "a", b"old")
        store.multipart.begin(ID, BUCKET, "a", declared)
        put(store, 1, b"new")
        with pytest.raises(Conflict, match=message):
            store.multipart.join(BUCKET, ID)
        assert store.get(BUCKET, "a") == b"old"
        assert len(store.multipart.parts(BUCKET, ID)) == 1

    def test_a_caller_may_say_which_parts_it_means(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        first = put(store, 1, b"abc")
        put(store, 2, b"left over")
        with pytest.raises(Conflict, match="another one"):
            store.multipart.join(BUCKET, ID, [Part(1, 3, digest(b"xyz"))])
        assert store.multipart.join(BUCKET, ID, [first]).size == 3

    def test_only_if_absent(self, store: ObjectStore) -> None:
        store.put(BUCKET, "a", b"old")
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        put(store, 1, b"new")
        with pytest.raises(AlreadyExists):
            store.multipart.join(BUCKET, ID, only_if_absent=True)
        assert store.get(BUCKET, "a") == b"old"
        store.multipart.join(BUCKET, ID)
        assert store.get(BUCKET, "a") == b"new"

    def test_many_join_at_once_and_one_succeeds(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        put(store, 1, b"abc" * 100_000)

        def join(_: int) -> int:
            try:
                return store.multipart.join(BUCKET, ID).size
            except NotFound:
                return 0

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(join, range(4))) == [0, 0, 0, 300_000]
        assert len(store.get(BUCKET, "a")) == 300_000

    def test_the_same_part_from_many_at_once_is_one_of_them(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        with ThreadPoolExecutor(6) as pool:
            sent = set(pool.map(lambda number: put(store, 1, b"%d" % number * 1000), range(6)))
        (kept,) = store.multipart.parts(BUCKET, ID)
        assert kept in sent

    def test_what_was_given_up_is_gone(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        late = store.multipart.writer(BUCKET, ID, 1)
        late.write(b"x")
        store.multipart.drop(BUCKET, ID)
        with pytest.raises(NotFound):
            late.commit()
        with pytest.raises(NotFound):
            store.multipart.drop(BUCKET, ID)
        assert list(store.multipart.all()) == []

    def test_uploads_expire_by_their_last_part(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        now = datetime.now(UTC)
        assert store.multipart.drop_older(now - timedelta(hours=1)) == 0
        assert store.multipart.drop_older(now + timedelta(hours=1)) == 1
        assert list(store.multipart.all()) == []

    def test_they_go_with_their_bucket(self, store: ObjectStore) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        store.delete_bucket(BUCKET)
        store.create_bucket(BUCKET)
        with pytest.raises(NotFound):
            store.multipart.get(BUCKET, ID)

    def test_they_are_listed(self, store: ObjectStore) -> None:
        store.create_bucket("other")
        store.multipart.begin(OTHER, BUCKET, "b", NOTHING)
        store.multipart.begin(ID, BUCKET, "c", NOTHING)
        store.multipart.begin("1" * 32, "other", "a", NOTHING)
        assert [(one.key, one.id) for one in store.multipart.all(BUCKET)] == [
            ("b", OTHER),
            ("c", ID),
        ]
        assert len(store.multipart.all()) == 3

    @pytest.mark.parametrize(
        "use",
        [
            lambda store, upload: store.multipart.get("other", upload),
            lambda store, upload: store.multipart.parts("other", upload),
            lambda store, upload: store.multipart.writer("other", upload, 1),
            lambda store, upload: store.multipart.join("other", upload),
            lambda store, upload: store.multipart.drop("other", upload),
        ],
    )
    @pytest.mark.parametrize("upload", [ID, OTHER, "", "..", "../..", "a/b", "0" * 31, "A" * 32])
    def test_an_upload_belongs_to_its_bucket(
        self, store: ObjectStore, use: Callable[[ObjectStore, str], object], upload: str
    ) -> None:
        store.create_bucket("other")
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        with pytest.raises(NotFound):
            use(store, upload)
        assert store.multipart.get(BUCKET, ID).key == "a"

    @pytest.mark.parametrize("number", [0, -1, PARTS + 1])
    def test_impossible_numbers(self, store: ObjectStore, number: int) -> None:
        store.multipart.begin(ID, BUCKET, "a", NOTHING)
        with pytest.raises(InvalidRequest, match="number"):
            store.multipart.writer(BUCKET, ID, number)

    def test_what_can_be_no_object_is_not_begun(self, store: ObjectStore) -> None:
        store.put(BUCKET, "folder/a", b"x")
        for bucket, key, error in (
            ("absent", "a", NotFound),
            (BUCKET, "../a", InvalidRequest),
            (BUCKET, "folder", Conflict),
        ):
            with pytest.raises(error):
                store.multipart.begin(ID, bucket, key, NOTHING)
        assert list(store.multipart.all()) == []

    # Digests

    def test_every_object_has_a_digest(self, store: ObjectStore) -> None:
        assert store.put(BUCKET, "a", b"abc").sha256 == digest(b"abc")
        assert store.digest(BUCKET, "a").sha256 == digest(b"abc")
        store.put(BUCKET, "a", b"xyz")
        assert store.digest(BUCKET, "a").sha256 == digest(b"xyz")
        for bucket, key in ((BUCKET, "b"), ("absent", "a")):
            with pytest.raises(NotFound):
                store.digest(bucket, key)

"""The contract of an object store, in code. Subclass ``ObjectStoreContract`` and provide ``store``.

::

    class TestMine(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyObjectStore(tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from cloud_ml.objects.base import Amount, Listing, ObjectStore
from cloud_ml.testing.multipart import MultipartContract

BUCKET = "data"

IMPOSSIBLE_KEYS = ["", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\\b", "a\nb", "a\0b", "\ud800"]
IMPOSSIBLE_KEYS += ["a" * 256, "é" * 128, "/".join(["a" * 200] * 6)]
LONGEST_KEYS = ["a" * 255, "é" * 127, "/".join(["d"] * 512), "/".join(["b" * 204] * 5)]
IN_BYTE_ORDER = ["a b", "a-b", "a.txt", "a/b", "a/c/d", "a0", "aa", "b/c", "z", "é", "日本/語", "\U0001f600"]


def keys(listing: Listing) -> list[str]:
    """The keys of a page."""
    return [info.key for info in listing.objects]


class ObjectStoreContract(MultipartContract):
    """Everything an object store promises."""

    @pytest.fixture(autouse=True)
    def bucket(self, store: ObjectStore) -> None:
        store.create_bucket(BUCKET)

    def fill(self, store: ObjectStore, *names: str) -> None:
        for name in names:
            store.put(BUCKET, name, name.encode())

    # Buckets

    def test_a_bucket_that_exists_may_be_made_again(self, store: ObjectStore) -> None:
        self.fill(store, "a")
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
        self.fill(store, "folder/a")
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

    # One object

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
        [(0, 3, b"012"), (7, None, b"789"), (7, 99, b"789"), (3, 0, b""), (10, None, b""), (99, 5, b"")],
    )
    def test_a_range_is_read(self, store: ObjectStore, start: int, length: int | None, expected: bytes) -> None:
        store.put(BUCKET, "digits", b"0123456789")
        info, chunks = store.read(BUCKET, "digits", start=start, length=length)
        assert b"".join(chunks) == expected
        assert info.size == 10

    @pytest.mark.parametrize(("start", "length"), [(-1, None), (0, -1)])
    def test_a_negative_range_is_refused(self, store: ObjectStore, start: int, length: int | None) -> None:
        self.fill(store, "a")
        with pytest.raises(InvalidRequest, match="-1"):
            store.read(BUCKET, "a", start=start, length=length)

    def test_what_is_absent(self, store: ObjectStore) -> None:
        self.fill(store, "folder/a")
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
        self.fill(store, "a")
        assert store.delete(BUCKET, "a") is True
        assert store.delete(BUCKET, "a") is False
        assert store.head(BUCKET, "a") is None

    def test_a_folder_ends_with_its_last_object(self, store: ObjectStore) -> None:
        self.fill(store, "a/b/c", "a/d")
        store.delete(BUCKET, "a/b/c")
        assert list(store.list(BUCKET, "a/", delimiter=True).folders) == []
        store.delete(BUCKET, "a/d")
        assert list(store.list(BUCKET, delimiter=True).folders) == []
        self.fill(store, "a")  # the name is free for an object again
        store.delete(BUCKET, "a")
        store.delete_bucket(BUCKET)

    # Keys

    @pytest.mark.parametrize("name", IMPOSSIBLE_KEYS)
    def test_keys_that_can_be_no_path_are_refused_everywhere(self, store: ObjectStore, name: str) -> None:
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

    @pytest.mark.parametrize("name", [*LONGEST_KEYS, *IN_BYTE_ORDER, "~", " ", "-rf", "a:b", "%2e%2e", "...", "é"])
    def test_all_other_keys_are_possible(self, store: ObjectStore, name: str) -> None:
        store.put(BUCKET, name, b"content")
        assert store.get(BUCKET, name) == b"content"
        assert keys(store.list(BUCKET)) == [name]
        assert store.delete(BUCKET, name)
        store.delete_bucket(BUCKET)

    def test_composed_and_decomposed_letters_are_two_keys(self, store: ObjectStore) -> None:
        self.fill(store, "é", "e\u0301")
        assert keys(store.list(BUCKET)) == ["e\u0301", "é"]

    @pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a", "a/b/c"), ("a/b", "a"), ("a/b/c", "a")])
    def test_nothing_is_an_object_and_a_folder(self, store: ObjectStore, first: str, second: str) -> None:
        self.fill(store, first)
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
            self.fill(store, first)
            with pytest.raises(Conflict):
                upload.commit()
        assert keys(store.list(BUCKET)) == [first]

    # Uploads

    def test_an_upload_is_invisible_until_it_is_committed(self, store: ObjectStore) -> None:
        self.fill(store, "old")
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

    # Listing

    def test_keys_come_in_byte_order(self, store: ObjectStore) -> None:
        assert sorted(IN_BYTE_ORDER, key=str.encode) == IN_BYTE_ORDER
        self.fill(store, *reversed(IN_BYTE_ORDER))
        assert keys(store.list(BUCKET)) == IN_BYTE_ORDER

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 11, 12, 13])
    @pytest.mark.parametrize("delimiter", [False, True])
    def test_pages_add_up_to_the_whole(self, store: ObjectStore, limit: int, delimiter: bool) -> None:
        self.fill(store, *IN_BYTE_ORDER)
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
        "prefix", ["", "a", "a/", "a/c", "a/c/", "a/c/d", "b/", "日", "日本/", "q", "a//", "/", "../"]
    )
    def test_a_prefix_need_not_end_at_a_folder(self, store: ObjectStore, prefix: str) -> None:
        self.fill(store, *IN_BYTE_ORDER)
        assert keys(store.list(BUCKET, prefix)) == [key for key in IN_BYTE_ORDER if key.startswith(prefix)]

    @pytest.mark.parametrize(
        "after", ["", "a", "a/", "a/b", "a/c", "a/c/", "a/c/d", "a/c/e", "a/z", "a0", "b", "zz", "\U0010ffff"]
    )
    def test_what_comes_after(self, store: ObjectStore, after: str) -> None:
        self.fill(store, *IN_BYTE_ORDER)
        assert keys(store.list(BUCKET, after=after)) == [key for key in IN_BYTE_ORDER if key > after]

    def test_a_delimiter_folds_what_lies_deeper(self, store: ObjectStore) -> None:
        self.fill(store, *IN_BYTE_ORDER)
        top = store.list(BUCKET, delimiter=True)
        assert list(top.folders) == ["a/", "b/", "日本/"]
        assert keys(top) == [key for key in IN_BYTE_ORDER if "/" not in key]
        inner = store.list(BUCKET, "a/", delimiter=True)
        assert (keys(inner), list(inner.folders)) == (["a/b"], ["a/c/"])
        part = store.list(BUCKET, "a", delimiter=True, after="a.txt")
        assert (keys(part), list(part.folders)) == (["a0", "aa"], ["a/"])

    def test_a_page_is_not_followed_by_an_empty_one(self, store: ObjectStore) -> None:
        self.fill(store, "a", "b")
        assert store.list(BUCKET, limit=2).next is None
        assert store.list(BUCKET, limit=1).next == "a"

    # Amounts

    def test_what_is_stored_is_counted(self, store: ObjectStore) -> None:
        assert store.amount(BUCKET) == Amount(0, 0)
        self.fill(store, "a/1", "a/22", "ab", "b")
        assert store.amount(BUCKET) == Amount(4, 10)
        assert store.amount(BUCKET, "a/") == Amount(2, 7)
        assert store.amount(BUCKET, "a") == Amount(3, 9)
        assert store.amount(BUCKET, "nothing") == Amount(0, 0)
        with pytest.raises(NotFound):
            store.amount("absent")

    def test_counting_stops_when_told_to(self, store: ObjectStore) -> None:
        self.fill(store, "a", "b")
        assert not store.amount(BUCKET, stop=lambda: True).complete

    def test_a_limit_below_one_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidRequest, match="limit"):
            store.list(BUCKET, limit=0)

    def test_a_listed_object_is_what_its_head_says(self, store: ObjectStore) -> None:
        self.fill(store, "a/b")
        assert list(store.list(BUCKET).objects) == [store.head(BUCKET, "a/b")]

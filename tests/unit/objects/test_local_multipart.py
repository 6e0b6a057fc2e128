"""What is particular to folders: restarts, leftovers, notes of digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import OutOfSpace
from cloud_ml.objects.local import LocalObjectStore, noted
from cloud_ml.objects.local.transfer import LocalWriter
from cloud_ml.objects.local.uploads import UploadFile
from cloud_ml.objects.multipart import Declared
from support.measuring import growth

BUCKET, ID = "data", "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path / "objects")
    store.create_bucket(BUCKET)
    return store


def begin(store: LocalObjectStore) -> None:
    store.multipart.begin(ID, BUCKET, "folder/a", Declared())
    for number, content in ((1, b"abc"), (2, b"def")):
        with store.multipart.writer(BUCKET, ID, number) as part:
            part.write(content)
            part.commit()


def test_an_upload_goes_on_after_a_restart(store: LocalObjectStore, tmp_path: Path) -> None:
    begin(store)
    again = LocalObjectStore(tmp_path / "objects")
    assert [part.number for part in again.multipart.parts(BUCKET, ID)] == [1, 2]
    again.multipart.join(BUCKET, ID)
    assert again.get(BUCKET, "folder/a") == b"abcdef"
    assert list((tmp_path / "objects" / ".parts" / BUCKET).iterdir()) == []
    assert list((tmp_path / "objects" / ".uploads").iterdir()) == []


def test_what_a_crash_left_of_an_upload_that_was_over_is_swept(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    begin(store)
    folder = tmp_path / "objects" / ".parts" / BUCKET / ID
    (folder / "about").unlink()
    os.utime(folder, (0, 0))
    LocalObjectStore(tmp_path / "objects")
    assert not folder.exists()


def test_uploads_of_earlier_versions_go_on(store: LocalObjectStore, tmp_path: Path) -> None:
    """They lay side by side, whatever their bucket."""
    begin(store)
    folders = tmp_path / "objects" / ".parts"
    (folders / BUCKET / ID).rename(folders / ID)
    (folders / BUCKET).rmdir()
    again = LocalObjectStore(tmp_path / "objects")
    assert again.multipart.join(BUCKET, ID).size == 6
    assert not (folders / ID).exists()


def test_a_bucket_that_is_removed_leaves_no_folder_of_uploads(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    begin(store)
    store.delete_bucket(BUCKET)
    assert list((tmp_path / "objects" / ".parts").iterdir()) == []


def test_uploads_of_others_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of uploads are begun

    def calls_beside(others: int) -> Callable[[], object]:
        store = LocalObjectStore(tmp_path / f"objects-{others}")
        for bucket in (BUCKET, "other"):
            store.create_bucket(bucket)
        for number in range(0 if (tmp_path / str(others)).exists() else others):
            store.multipart.begin(f"{number + 1:032x}", "other", "a", Declared())
        (tmp_path / str(others)).touch()
        begin(store)

        def calls() -> None:
            for _ in range(
                200
            ):  # they only read: what is written costs by chance what others have written
                assert store.multipart.count(BUCKET) == 1
                assert len(store.multipart.all(BUCKET)) == 1
                assert store.multipart.held({BUCKET}) == 6

        return calls

    _, power = growth(calls_beside, 25, below=0.5)
    assert power < 0.5


def test_no_space_for_the_whole_keeps_the_parts(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store)
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OutOfSpace("the disk is full")

        patched.setattr(LocalWriter, "write", full)
        with pytest.raises(OutOfSpace):
            store.multipart.join(BUCKET, ID)
    assert store.multipart.join(BUCKET, ID).size == 6


def test_a_digest_is_noted_until_a_job_writes(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted, "_TICK_NS", 0)  # what the job writes is written long ago at once
    store.put(BUCKET, "a", b"abc")
    file = store.folder(BUCKET) / "a"
    if not os.listxattr(file):
        pytest.skip("this file system keeps no attributes")
    assert store.read(BUCKET, "a")[0].sha256 == hashlib.sha256(b"abc").hexdigest()
    file.write_bytes(b"xyz")
    assert store.read(BUCKET, "a")[0].sha256 is None
    assert store.digest(BUCKET, "a").sha256 == hashlib.sha256(b"xyz").hexdigest()
    assert store.read(BUCKET, "a")[0].sha256 == hashlib.sha256(b"xyz").hexdigest()


def test_no_note_of_a_jobs_own_vouches_for_its_bytes(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    """A job may write attributes, copy those of other files, and turn the time of change back."""
    store.put(BUCKET, "good", b"good")
    store.put(BUCKET, "evil", b"evil")
    good, evil = store.folder(BUCKET) / "good", store.folder(BUCKET) / "evil"
    if not os.listxattr(good):
        pytest.skip("this file system keeps no attributes")
    (name,) = os.listxattr(good)
    status = good.stat()
    os.setxattr(evil, name, os.getxattr(good, name))
    os.utime(evil, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert store.read(BUCKET, "evil")[0].sha256 is None

    lie = f"{'0' * 64} 4 {evil.stat().st_mtime_ns}".encode()
    for text in (lie, lie + b" " + b"0" * 64, f"{'0' * 64} {2**62} {'0' * 64}".encode()):
        os.setxattr(evil, name, text)
        assert store.read(BUCKET, "evil")[0].sha256 is None
        assert store.digest(BUCKET, "evil").sha256 == hashlib.sha256(b"evil").hexdigest()


def test_the_time_of_change_turned_back_makes_no_note_good(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        noted, "_SETTLES_NS", -1
    )  # a job that comes after the moment in which a file is placed
    store.put(BUCKET, "a", b"good")
    file = store.folder(BUCKET) / "a"
    before = file.stat()
    with file.open("r+b") as same:
        same.write(b"evil")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.read(BUCKET, "a")[0].sha256 is None
    assert store.digest(BUCKET, "a").sha256 == hashlib.sha256(b"evil").hexdigest()


def test_servers_on_one_folder_believe_each_other(store: LocalObjectStore, tmp_path: Path) -> None:
    store.put(BUCKET, "a", b"abc")
    if not os.listxattr(store.folder(BUCKET) / "a"):
        pytest.skip("this file system keeps no attributes")
    other = LocalObjectStore(tmp_path / "objects")
    assert other.read(BUCKET, "a")[0].sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (tmp_path / "objects" / ".notes-key").stat().st_mode & 0o777 == 0o600


def test_no_note_survives_a_write_in_the_tick_of_the_last_one(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    """As kernels before 6.13 date it: the same size, and the time of the tick in which the
    server wrote last.
    """
    draft_times: list[int] = []
    place = LocalWriter._place

    def spied(self: LocalWriter, upload: UploadFile, *rest: Any) -> None:
        draft_times.append(os.fstat(upload.descriptor).st_mtime_ns)
        place(self, upload, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalWriter, "_place", spied)
        store.put("data", "a", b"first")
    assert store.read("data", "a")[0].sha256 == hashlib.sha256(b"first").hexdigest()
    file = tmp_path / "objects" / "data" / "a"
    before = store.head("data", "a")
    with file.open("r+b") as same:
        same.write(b"other")
    os.utime(file, ns=(draft_times[0], draft_times[0]))
    assert store.read("data", "a")[0].sha256 != hashlib.sha256(b"first").hexdigest()
    assert store.digest("data", "a").sha256 == hashlib.sha256(b"other").hexdigest()
    after = store.head("data", "a")
    assert before is not None
    assert after is not None
    assert before.etag != after.etag, "another version has another ETag"


def test_a_file_of_a_job_is_not_noted_while_it_may_be_written_in_the_same_tick(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "objects" / "data" / "of-a-job"
    file.write_bytes(b"first")
    assert store.digest("data", "of-a-job").sha256 == hashlib.sha256(b"first").hexdigest()
    assert store.read("data", "of-a-job")[0].sha256 is None, (
        "written a moment ago: it is read again each time"
    )
    monkeypatch.setattr(noted, "_TICK_NS", 0)
    store.digest("data", "of-a-job")
    assert store.read("data", "of-a-job")[0].sha256 == hashlib.sha256(b"first").hexdigest()

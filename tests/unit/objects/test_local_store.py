"""What is particular to folders: owners, leftovers, full disks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import Conflict, NotFound, OutOfSpace, PreconditionFailed, Unavailable
from cloud_ml.objects.local import LocalObjectStore

BUCKET = "data"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path / "objects")
    store.create_bucket(BUCKET)
    return store


def uploads(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "objects" / ".uploads").iterdir())


def test_a_bucket_is_a_plain_tree(store: LocalObjectStore, tmp_path: Path) -> None:
    store.put(BUCKET, "in/put", b"x")
    assert store.folder(BUCKET) == tmp_path / "objects" / BUCKET
    assert (store.folder(BUCKET) / "in" / "put").read_bytes() == b"x"
    (store.folder(BUCKET) / "out").write_bytes(b"of a job")
    assert store.get(BUCKET, "out") == b"of a job"
    with pytest.raises(NotFound):
        store.folder("absent")


def test_empty_folders_of_jobs_are_not_listed(store: LocalObjectStore) -> None:
    (store.folder(BUCKET) / "a" / "b").mkdir(parents=True)
    assert store.list(BUCKET, delimiter=True).folders == []


def test_nothing_is_left_of_uploads_that_are_over(store: LocalObjectStore, tmp_path: Path) -> None:
    store.put(BUCKET, "a", b"x")
    store.put(BUCKET, "b", b"x", only_if_absent=True)
    with store.writer(BUCKET, "c") as upload:
        upload.write(b"x")
        assert len(uploads(tmp_path)) == 1
    assert uploads(tmp_path) == []
    assert (store.folder(BUCKET) / "b").stat().st_nlink == 1


CRASHING = """
import os, signal, sys
from pathlib import Path
from cloud_ml.objects.local import LocalObjectStore
store = LocalObjectStore(Path(sys.argv[1]))
upload = store.writer("data", "folder/a")
upload.write(b"half" * 1000)
print("writing", flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "crash" else sys.stdin.read()
"""


def start_writer(tmp_path: Path, end: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", textwrap.dedent(CRASHING), str(tmp_path / "objects"), end]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


def test_a_crash_during_an_upload_leaves_nothing_that_is_seen(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    with start_writer(tmp_path, "crash") as process:
        assert process.wait() == -signal.SIGKILL
    assert store.list(BUCKET).objects == []
    assert list(store.folder(BUCKET).iterdir()) == []
    assert len(uploads(tmp_path)) == 1
    LocalObjectStore(tmp_path / "objects")
    assert uploads(tmp_path) == []


def test_a_starting_server_leaves_uploads_of_another_alone(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    with start_writer(tmp_path, "wait") as process:
        with store.writer(BUCKET, "mine") as upload:
            upload.write(b"x")
            LocalObjectStore(tmp_path / "objects")
            assert len(uploads(tmp_path)) == 2
            upload.commit()
        process.kill()
    assert store.get(BUCKET, "mine") == b"x"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir"])
def test_a_full_disk_costs_the_upload_and_nothing_else(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    store.put(BUCKET, "old", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        with pytest.raises(OutOfSpace, match="data/"):
            store.put(BUCKET, "new/er" if call == "mkdir" else "old", b"new")
        assert store.get(BUCKET, "old") == b"old"
    assert uploads(tmp_path) == []
    assert [info.key for info in store.list(BUCKET).objects] == ["old"]
    store.put(BUCKET, "old", b"new")


def test_a_disk_that_is_really_full(store: LocalObjectStore, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    with store.writer(BUCKET, "a") as upload:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, upload._upload.descriptor)  # type: ignore[attr-defined]
        os.close(full)
        with pytest.raises(OutOfSpace):
            upload.write(b"x")
        with pytest.raises(ValueError, match="over"):
            upload.commit()
    assert store.list(BUCKET).objects == []


def test_a_read_under_way_that_is_dropped_closes_its_file(store: LocalObjectStore) -> None:
    store.put(BUCKET, "a", b"x" * 1_000_000)
    before = descriptors()
    chunks = [store.read(BUCKET, "a")[1] for _ in range(10)]
    next(chunks[0])
    chunks[1].close()  # type: ignore[attr-defined]
    chunks[1].close()  # type: ignore[attr-defined]
    assert list(chunks[1]) == []
    chunks.clear()
    assert descriptors() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_its_job_has_closed(store: LocalObjectStore) -> None:
    store.put(BUCKET, "closed/a", b"x")
    store.put(BUCKET, "open", b"x")
    (store.folder(BUCKET) / "closed").chmod(0)
    with pytest.raises(Conflict, match="permissions"):
        store.get(BUCKET, "closed/a")
    assert [info.key for info in store.list(BUCKET).objects] == ["open"]


def test_a_file_that_a_job_has_leased(store: LocalObjectStore) -> None:
    store.put(BUCKET, "a", b"x")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells the owner, whom it would end
    try:
        with (store.folder(BUCKET) / "a").open("r+b") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            with pytest.raises(Unavailable, match="data/a is not to be read while"):
                store.get(BUCKET, "a")
    finally:
        signal.signal(signal.SIGIO, before)
    assert store.get(BUCKET, "a") == b"x"


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o7777 for path in [folder, *folder.rglob("*")]}


def test_modes_do_not_hang_on_the_umask(store: LocalObjectStore) -> None:
    before = os.umask(0o277)
    try:
        store.put(BUCKET, "a/b", b"")
    finally:
        os.umask(before)
    group = 0o070 if os.geteuid() == 0 else 0
    assert modes(store.folder(BUCKET)) == {
        BUCKET: 0o700 | group,
        "a": 0o700 | group,
        "b": 0o600 | group,
    }


@pytest.mark.root
@as_root
class TestOwners:
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalObjectStore:
        store = LocalObjectStore(tmp_path / "objects", lambda tenant: 70_000 + tenant)
        store.create_bucket(BUCKET, tenant=3)
        return store

    def owners(self, folder: Path) -> set[tuple[int, int]]:
        return {(path.lstat().st_uid, path.lstat().st_gid) for path in [folder, *folder.rglob("*")]}

    def test_all_of_a_bucket_is_its_tenants(self, store: LocalObjectStore) -> None:
        store.put(BUCKET, "a/b/c", b"x")
        store.put(BUCKET, "d", b"x", only_if_absent=True)
        assert self.owners(store.folder(BUCKET)) == {(70_003, 70_003)}
        assert modes(store.folder(BUCKET))[BUCKET] == 0o770

    def test_another_server_without_the_rule_keeps_the_owner(
        self, store: LocalObjectStore, tmp_path: Path
    ) -> None:
        LocalObjectStore(tmp_path / "objects").put(BUCKET, "a/b", b"x")
        assert self.owners(store.folder(BUCKET)) == {(70_003, 70_003)}

    def test_a_bucket_never_changes_hands(self, store: LocalObjectStore) -> None:
        store.create_bucket(BUCKET, tenant=4)
        assert self.owners(store.folder(BUCKET)) == {(70_003, 70_003)}

    def test_what_a_crash_left_half_made_is_finished(
        self, store: LocalObjectStore, tmp_path: Path
    ) -> None:
        (tmp_path / "objects" / "other").mkdir(mode=0o700)
        store.create_bucket("other", tenant=5)
        assert self.owners(store.folder("other")) == {(70_005, 70_005)}
        (store.folder(BUCKET) / "a").mkdir(mode=0o700)
        store.put(BUCKET, "a/b", b"x")
        assert self.owners(store.folder(BUCKET)) == {(70_003, 70_003)}

    def test_a_link_of_a_jobs_is_not_given_away(
        self, store: LocalObjectStore, tmp_path: Path
    ) -> None:
        (tmp_path / "passwd").write_bytes(b"root")
        (store.folder(BUCKET) / "link").symlink_to(tmp_path / "passwd")
        os.chown(store.folder(BUCKET) / "link", 1, 1)
        assert (tmp_path / "passwd").stat().st_uid == 1  # chown by path does give it away
        os.chown(tmp_path / "passwd", 0, 0)
        store.put(BUCKET, "link", b"x")
        assert (tmp_path / "passwd").stat().st_uid == 0

    def test_tenants_cannot_look_around(self, store: LocalObjectStore, tmp_path: Path) -> None:
        assert (tmp_path / "objects").stat().st_mode & 0o077 == 0o011
        assert (tmp_path / "objects" / ".uploads").stat().st_mode & 0o077 == 0


def test_a_copy_of_holes_takes_no_room(store: LocalObjectStore) -> None:
    """A job makes a file of a terabyte in no time; its copy must not fill the disk."""
    with store.writer(BUCKET, "a") as upload:
        for chunk in (b"begin", bytes(1 << 24), b"end", bytes(1 << 20)):
            upload.write(chunk)
        upload.commit()
    status = (store.folder(BUCKET) / "a").stat()
    assert status.st_size == 8 + (1 << 24) + (1 << 20)
    assert status.st_blocks * 512 < 1 << 20
    assert store.get(BUCKET, "a") == b"begin" + bytes(1 << 24) + b"end" + bytes(1 << 20)


@pytest.mark.parametrize("writes", [1, 2])
def test_a_deletion_of_one_version_never_takes_a_newer_one(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """A writer replaces the object between the look at it and its removal, and maybe again
    before it is put back.
    """
    old, rename, link = store.put(BUCKET, "a", b"old").etag, os.rename, os.link

    def late_rename(*paths: Any, **folders: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        store.put(BUCKET, "a", b"new")
        rename(*paths, **folders)

    def late_link(*paths: Any, **folders: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        if writes == 2:
            store.put(BUCKET, "a", b"newest")
        link(*paths, **folders)

    monkeypatch.setattr(os, "rename", late_rename)
    monkeypatch.setattr(os, "link", late_link)
    with pytest.raises(PreconditionFailed):
        store.delete(BUCKET, "a", etag=old)
    assert store.get(BUCKET, "a") == (b"new" if writes == 1 else b"newest")
    assert uploads(tmp_path) == []

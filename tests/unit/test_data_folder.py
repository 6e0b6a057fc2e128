"""Whose the data folder is."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml import data_folder, lock_file
from cloud_ml.errors import (
    CloudMlError,
    Conflict,
    Forbidden,
    InvalidRequest,
    OutOfSpace,
    Unavailable,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to be two users takes root")
OTHER = 54_321


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may walk through."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def _as_other(data: Path) -> str:
    """What a server of the other user says of the folder. Forked: that user cannot read our
    interpreter.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(OTHER)
        os.setuid(OTHER)
        try:
            data_folder.hold(data, for_server=True)
            outcome = "held"
        except CloudMlError as error:
            outcome = f"{error.message}|{error.hint}"
        os.write(sender, outcome.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        outcome = pipe.read()
    os.waitpid(child, 0)
    return outcome


def _given(data: Path) -> Path:
    data.mkdir()
    os.chown(data, OTHER, OTHER)
    return data


def test_a_server_of_root_does_not_use_the_folder_of_another_user(folder: Path) -> None:
    data = _given(folder / "data")
    assert _as_other(data) == "held"
    with pytest.raises(
        Forbidden, match=f"belongs to the user {OTHER}, and this process runs as root"
    ) as refused:
        data_folder.hold(data, for_server=True)
    assert refused.value.hint is not None
    assert f"User={OTHER}" in refused.value.hint


def test_maintenance_by_root_leaves_the_folder_to_its_user(folder: Path) -> None:
    data = _given(folder / "data")
    os.close(data_folder.hold(data))
    assert _as_other(data) == "held"


def test_who_may_not_use_the_folder_is_told_whose_it_is(folder: Path) -> None:
    os.close(data_folder.hold(folder / "roots", for_server=True))
    assert "belongs to the user root" in _as_other(folder / "roots")
    assert f"chown -R {OTHER}: {folder / 'roots'}" in _as_other(folder / "roots")
    assert f"install -d -o {OTHER} -m 711 {folder / 'new'}" in _as_other(folder / "new")
    assert not (folder / "new").exists()


def test_a_server_of_root_does_not_start_in_an_empty_folder_of_another_user(folder: Path) -> None:
    data = _given(folder / "data")
    with pytest.raises(Forbidden, match=f"belongs to the user {OTHER}"):
        data_folder.check_owner(data)
    with pytest.raises(Forbidden, match=f"belongs to the user {OTHER}"):
        data_folder.hold(data, for_server=True)
    assert list(data.iterdir()) == [], "and leaves nothing of root in it"


def test_root_is_told_how_to_type_it_as_the_user_of_the_folder(folder: Path) -> None:
    data = folder / "data"
    data.mkdir()
    os.chown(data, 65_534, 65_534)
    with pytest.raises(Forbidden) as refused:
        data_folder.hold(data, for_server=True)
    assert refused.value.hint is not None
    assert "runuser -u nobody -- cloudml server" in refused.value.hint
    assert f"chown -R root: {data}" in refused.value.hint


def test_nobody_is_told_to_take_a_folder_away_from_a_server_that_runs(folder: Path) -> None:
    data = folder / "data"
    lock = data_folder.hold(data, for_server=True)
    os.chown(data / lock_file.NAME, 65_534, 65_534)
    with pytest.raises(Forbidden) as refused:
        data_folder.check_owner(data)
    os.close(lock)
    assert refused.value.hint is not None
    assert "A server runs on it" in refused.value.hint
    assert "chown" not in refused.value.hint


def test_a_folder_of_all_users_stays_one(folder: Path) -> None:
    shared = folder / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(InvalidRequest, match="shared by all users") as refused:
        data_folder.hold(shared, for_server=True)
    assert f"--data-dir {shared / 'cloud-ml'}" in (refused.value.hint or "")
    assert (shared.stat().st_mode & 0o7777, list(shared.iterdir())) == (0o1777, [])


def test_what_lies_in_place_of_the_folder_is_named(folder: Path) -> None:
    link, file = folder / "link", folder / "file"
    link.symlink_to(folder / "gone")
    file.touch()
    with pytest.raises(InvalidRequest, match=f"link is a link to {folder}/gone, which does not"):
        data_folder.hold(link)
    for path in (file, file / "data"):
        with pytest.raises(InvalidRequest, match=f"{file} is a file"):
            data_folder.hold(path)


def test_a_command_that_looks_for_a_server_is_not_taken_for_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder / "data"
    os.close(data_folder.hold(data))
    (data / lock_file.NAME).write_text("")  # as before the first server
    looks = os.open(data / lock_file.NAME, os.O_RDWR)
    fcntl.flock(looks, fcntl.LOCK_EX)
    monkeypatch.setattr("time.sleep", lambda _: os.close(looks))  # it has seen enough
    os.close(data_folder.hold(data, for_server=True))


def test_a_server_is_told_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder / "data"
    lock = data_folder.hold(data, for_server=True)
    monkeypatch.setattr("time.sleep", pytest.fail)
    with pytest.raises(Conflict, match=rf"another server \(process {os.getpid()}\)"):
        data_folder.hold(data)
    os.close(lock)


def test_a_disk_without_file_locks_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)  # as on NFS that is mounted without locks
    with pytest.raises(Unavailable, match=r"has no file locks \(No locks available\)"):
        data_folder.hold(folder / "data", for_server=True)


def test_servers_that_share_a_folder_are_all_in_its_lock_file(folder: Path) -> None:
    locks = [data_folder.hold(folder / "data", for_server=True, shared=True) for _ in range(2)]
    assert lock_file.holders(locks[0]) == [os.getpid()] * 2
    with pytest.raises(Conflict, match=f"process {os.getpid()}.* uses"):
        data_folder.hold(folder / "data", for_server=True)
    for lock in locks:
        os.close(lock)
    os.close(data_folder.hold(folder / "data", for_server=True))


def test_only_servers_that_run_are_named(folder: Path) -> None:
    data = folder / "data"
    lock = data_folder.hold(data, for_server=True, shared=True)
    (own,) = (data / lock_file.NAME).read_text().splitlines()
    (data / lock_file.NAME).write_text(f"{own}\n{2**22 + 1} {own.split()[1]}\n")
    with pytest.raises(Conflict, match=rf"another server \(process {os.getpid()}\) uses"):
        data_folder.hold(data)
    os.close(lock)


def test_a_server_that_has_the_folder_alone_shares_it_with_nobody(folder: Path) -> None:
    lock = data_folder.hold(folder / "data", for_server=True)
    with pytest.raises(Conflict) as refused:
        data_folder.hold(folder / "data", for_server=True, shared=True)
    assert "--shared-data" in str(refused.value.hint)
    os.close(lock)


def test_a_server_of_another_machine_does_not_share_the_folder(folder: Path) -> None:
    lock = data_folder.hold(folder / "data", for_server=True, shared=True)
    (folder / "data" / lock_file.NAME).write_text("7 another-boot/4026531836\n")
    with pytest.raises(Conflict, match="on another machine, or in another container"):
        data_folder.hold(folder / "data", for_server=True, shared=True)
    os.close(lock)
    lock = data_folder.hold(folder / "data", for_server=True, shared=True)
    assert lock_file.holders(lock) == [os.getpid()], "what it said was of the past"
    os.close(lock)


def test_servers_that_share_a_folder_drop_the_lines_of_those_that_have_ended(folder: Path) -> None:
    data = folder / "data"
    first = data_folder.hold(data, for_server=True, shared=True)
    (own,) = (data / lock_file.NAME).read_text().splitlines()
    gone = f"{2**22 + 1} {own.split()[1]}\n"
    (data / lock_file.NAME).write_text(f"{own}\n\n{gone * 1000}")
    second = data_folder.hold(data, for_server=True, shared=True)
    assert (data / lock_file.NAME).read_text().splitlines() == [own, own]
    (data / lock_file.NAME).write_text(f"{own}\n1 of-another-machine\n")
    with pytest.raises(Conflict, match="on another machine"):
        data_folder.hold(data, for_server=True, shared=True)
    for each in (first, second):
        os.close(each)
    os.close(data_folder.hold(data, for_server=True, shared=True))
    assert (data / lock_file.NAME).read_text().splitlines() == [own]


@pytest.mark.parametrize("shared", [False, True])
def test_a_full_disk_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    data = folder / "data"

    def refuse(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(OutOfSpace, match="No space left"):
            data_folder.hold(data, for_server=True, shared=shared)
    os.close(data_folder.hold(data, for_server=True, shared=shared))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "cannot be created in {}: its disk is read-only"),
        (errno.ENAMETOOLONG, "cannot be created in {}: File name too long"),
        (errno.EPERM, "cannot be created in {}: Operation not permitted"),
    ],
)
def test_a_folder_that_cannot_be_made_is_told_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_path: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InvalidRequest) as caught:
        data_folder.hold(folder / "data", for_server=True)
    assert caught.value.message == f"the data folder {folder / 'data'} " + words.format(folder)
    assert caught.value.field == "server.data_dir"


@pytest.mark.parametrize("path", ["/proc/cloud-ml", "/proc", "/sys/cloud-ml"])
def test_the_folders_of_the_kernel_store_no_files(path: str) -> None:
    with pytest.raises(
        CloudMlError, match="stores no files" if os.geteuid() == 0 else "data folder"
    ):
        data_folder.hold(Path(path), for_server=True)

"""Buckets as a file system of fsspec, on a real server."""

from __future__ import annotations

import urllib.request
from datetime import UTC, datetime

import fsspec
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.sdk.storage.filesystem import FdsFileSystem
from support.server import RealServer


@pytest.fixture(scope="module")
def files(server: RealServer) -> FdsFileSystem:
    client: CloudMlClient = server.client()
    client.storage.create_bucket("spec-files")
    return FdsFileSystem(client, skip_instance_cache=True)


def test_it_is_found_by_its_scheme() -> None:
    assert fsspec.get_filesystem_class("fds") is FdsFileSystem


def test_what_is_written_can_be_read_listed_and_removed(files: FdsFileSystem) -> None:
    with files.open("fds://spec-files/a/b/one.txt", "wb") as file:
        file.write(b"hello, ")
        file.write(b"world")
        assert not files.exists("spec-files/a/b/one.txt"), "it appears as a whole"
    assert files.cat_file("spec-files/a/b/one.txt") == b"hello, world"
    assert files.cat_file("spec-files/a/b/one.txt", 1, -1) == b"ello, worl"
    assert files.ls("spec-files/a", detail=False) == ["spec-files/a/b"]
    (entry,) = files.ls("fds://spec-files/a/b/")
    assert (entry["name"], entry["size"], entry["type"]) == ("spec-files/a/b/one.txt", 12, "file")
    assert files.find("spec-files/a") == ["spec-files/a/b/one.txt"]
    assert files.glob("spec-files/*/b/*.txt") == ["spec-files/a/b/one.txt"]
    assert files.isdir("spec-files/a")
    assert files.isdir("spec-files")
    assert not files.exists("spec-files/a/c")
    assert datetime.now(UTC).timestamp() - files.modified("spec-files/a/b/one.txt").timestamp() < 60
    files.cp("spec-files/a/b/one.txt", "spec-files/two.txt")
    files.mv("spec-files/two.txt", "spec-files/three.txt")
    assert files.ls("spec-files", detail=False) == ["spec-files/a", "spec-files/three.txt"]
    with pytest.raises(IsADirectoryError):
        files.rm("spec-files/a")
    files.rm("spec-files/a", recursive=True)
    assert files.ls("spec-files", detail=False) == ["spec-files/three.txt"]
    files.rm("spec-files/three.txt")
    assert files.ls("spec-files") == []
    for path in ("spec-files/three.txt", "fds://spec-files/three.txt"):
        for remove in (files.rm, files.rm_file):
            with pytest.raises(
                FileNotFoundError, match=r"^there is no fds://spec-files/three\.txt$"
            ):
                remove(path)


def test_a_part_of_a_large_file_is_read_and_no_more(files: FdsFileSystem) -> None:
    content = bytes(range(256)) * 40_000
    files.pipe_file("spec-files/large", content)
    with files.open("spec-files/large", "rb", block_size=1000) as file:
        file.seek(5_000_000)
        assert file.read(10) == content[5_000_000:5_000_010]
        assert file.cache.total_requested_bytes < 10_000
        file.seek(-3, 2)
        assert file.read() == content[-3:]


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(files: FdsFileSystem) -> None:
    files.pipe_file("spec-files/changes", b"a" * 20_000)
    with files.open("spec-files/changes", "rb", block_size=1000) as file:
        assert file.read(10) == b"a" * 10
        files.pipe_file("spec-files/changes", b"b" * 20_000)
        with pytest.raises(OSError, match="was replaced while it was read"):
            file.read(15_000)


def test_modes_of_writing(files: FdsFileSystem) -> None:
    files.pipe_file("spec-files/modes", b"one")
    with files.open("spec-files/modes", "ab") as file:
        file.write(b", two")
    assert files.cat_file("spec-files/modes") == b"one, two"
    with pytest.raises(FileExistsError), files.open("spec-files/modes", "xb") as file:
        file.write(b"three")
    with files.open("spec-files/modes", "w") as text:
        text.write("four")
    assert files.cat_file("spec-files/modes") == b"four"
    with files.open("spec-files/empty", "wb"):
        pass
    assert files.info("spec-files/empty")["size"] == 0


def test_what_is_wrong_is_said_as_files_say_it(files: FdsFileSystem) -> None:
    with pytest.raises(FileNotFoundError, match=r"fds://spec-files/nothing"):
        files.open("spec-files/nothing", "rb")
    with pytest.raises(FileNotFoundError):
        files.ls("no-such-bucket/folder")
    with pytest.raises(FileNotFoundError):
        files.info("no-such-bucket")
    with pytest.raises(ValueError, match="allowed is"):
        files.pipe_file("spec-files/a/../b", b"")


def test_what_others_write_is_seen_at_once(files: FdsFileSystem, server: RealServer) -> None:
    assert not files.exists("spec-files/late")
    server.client().storage.upload_bytes(b"late", "fds://spec-files/late")
    assert files.exists("spec-files/late")
    before = files.ukey("spec-files/late")
    server.client().storage.upload_bytes(b"later", "fds://spec-files/late")
    assert files.ukey("spec-files/late") != before


def test_a_link_serves_who_has_it(files: FdsFileSystem) -> None:
    files.pipe_file("spec-files/link", b"linked")
    link = files.sign("spec-files/link", expiration=60)
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"linked"

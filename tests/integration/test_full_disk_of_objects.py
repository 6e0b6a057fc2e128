"""A disk of objects that is really full, and then read-only, below a real server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import OutOfSpace
from cloud_ml.sdk.storage.transfers import Transfers
from support.server import RealServer, serving

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("transfers"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk"),
]

DISK = 8 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("server")
    objects = folder / "data" / "objects"
    objects.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "tmpfs", str(objects)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        with serving(folder) as server:
            yield server
    finally:
        subprocess.run(["umount", "-l", str(objects)], check=False, capture_output=True)


@pytest.fixture
def client(server: RealServer) -> Iterator[CloudMlClient]:
    key = server.credentials
    with CloudMlClient(key["access_key"], key["secret_key"], server.endpoint) as client:
        client._transport.sleep = lambda _: None
        client.storage.upload(b"here before", "fds://cloudml/before")
        yield client


def left(server: RealServer) -> list[str]:
    objects = server.data / "objects"
    found = (path.relative_to(objects) for path in objects.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] not in (".notes-key", ".locks"))


def test_uploads_are_refused_and_leave_nothing(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(DISK + 1))  # zeros would take no room
    for _ in range(2):
        with pytest.raises(OutOfSpace, match="cannot be written"):
            client.storage.upload(big, "fds://cloudml/big")
    assert left(server) == ["cloudml/before"]
    with client.storage.open("fds://cloudml/before") as content:
        assert content.read() == b"here before"
    assert client.storage.upload(os.urandom(DISK // 2), "fds://cloudml/fits").size == DISK // 2
    client.storage.delete("fds://cloudml/fits")


def test_an_upload_in_parts_waits_for_space(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    file = tmp_path / "parts"
    file.write_bytes(os.urandom(DISK * 5 // 4))
    client.storage._transfers = Transfers(in_parts_from=1, part_size=1 << 20)
    with pytest.raises(OutOfSpace):
        client.storage.upload(file, "fds://cloudml/parts")
    assert not [name for name in left(server) if name.startswith(("cloudml/parts", ".uploads"))]
    subprocess.run(
        ["mount", "-o", f"remount,size={DISK * 2}", str(server.data / "objects")],
        check=True,
        capture_output=True,
    )
    progress: list[int] = []
    client.storage.upload(
        file, "fds://cloudml/parts", progress=lambda done, _: progress.append(done)
    )
    assert progress[0] >= DISK // 2, "what had arrived before is not sent again"
    assert left(server) == ["cloudml/before", "cloudml/parts"]


def test_a_disk_that_is_read_only_is_read(server: RealServer, client: CloudMlClient) -> None:
    objects = str(server.data / "objects")
    subprocess.run(["mount", "-o", "remount,ro", objects], check=True, capture_output=True)
    with pytest.raises(OutOfSpace):
        client.storage.upload(b"x", "fds://cloudml/x")
    with pytest.raises(OutOfSpace):
        client.storage.delete("fds://cloudml/before")
    assert client.storage.head("fds://cloudml/before").size == 11
    assert client.storage.digest("fds://cloudml/before") is not None
    subprocess.run(["mount", "-o", "remount,rw", objects], check=True, capture_output=True)
    assert client.storage.upload(b"x", "fds://cloudml/x").size == 1

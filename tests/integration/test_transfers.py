"""Large objects on a bad line: through a real server, with clients that are killed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest, NotFound, TransportError
from support.flaky import FlakyWay
from support.server import CLOUDML, RealServer, eventually, serving

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("transfers")]

SIZE = 4 << 20
PART = 256 << 10
SETTINGS = {"CLOUDML_TRANSFER_IN_PARTS_FROM": str(1 << 20), "CLOUDML_TRANSFER_PART_SIZE": str(PART)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def way(server: RealServer) -> Iterator[FlakyWay]:
    way = FlakyWay(server.port)
    yield way
    way.close()


@pytest.fixture
def client(
    server: RealServer, way: FlakyWay, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CloudMlClient]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    key = server.credentials
    with CloudMlClient(key["access_key"], key["secret_key"], way.endpoint) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "big.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


def start(server: RealServer, way: FlakyWay, *arguments: str) -> subprocess.Popen[bytes]:
    key = server.credentials
    connection = {
        "CLOUDML_ENDPOINT": way.endpoint,
        "CLOUDML_ACCESS_KEY": key["access_key"],
        "CLOUDML_SECRET_KEY": key["secret_key"],
    }
    return subprocess.Popen(
        [str(CLOUDML), "storage", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(server.user_home), **connection, **SETTINGS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_an_upload_survives_a_cut(client: CloudMlClient, way: FlakyWay, file: Path) -> None:
    way.up_limit = SIZE // 2
    stored = client.storage.upload(file, "fds://cloudml/cut.bin")
    assert way.reached.is_set()
    assert stored.size == SIZE
    assert way.up < SIZE + 2 * PART
    with client.storage.open("fds://cloudml/cut.bin") as content:
        assert content.read() == file.read_bytes()


def test_clients_that_send_the_same_file_at_once_all_succeed(
    client: CloudMlClient, file: Path
) -> None:
    with ThreadPoolExecutor(3) as pool:
        stored = list(
            pool.map(lambda _: client.storage.upload(file, "fds://cloudml/together.bin"), range(3))
        )
    assert {one.sha256 for one in stored} == {hashlib.sha256(file.read_bytes()).hexdigest()}
    with client.storage.open("fds://cloudml/together.bin") as content:
        assert content.read() == file.read_bytes()


def test_clients_that_send_different_files_to_one_key_leave_one_of_them(
    client: CloudMlClient, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(os.urandom(SIZE))
    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(
                lambda source: client.storage.upload(source, "fds://cloudml/one.bin"), (file, other)
            )
        )
    with client.storage.open("fds://cloudml/one.bin") as content:
        assert content.read() in (file.read_bytes(), other.read_bytes())


@pytest.mark.parametrize("change", ["ahead", "behind", "shorter"])
def test_a_file_that_changes_while_it_is_sent_is_refused_by_name(
    client: CloudMlClient, file: Path, change: str
) -> None:
    """``ahead``: where it was hashed and not sent yet; ``behind``: where it was sent already."""

    def progress(done: int, _: int | None) -> None:
        if done >= SIZE // 2:
            with file.open("r+b") as same:
                if change == "shorter":
                    same.truncate(done)
                else:
                    same.seek(min(done + 1, SIZE - 1) if change == "ahead" else 0)
                    same.write(os.urandom(16))

    with pytest.raises(InvalidRequest, match="changed while it was sent") as error:
        client.storage.upload(file, "fds://cloudml/changing.bin", progress=progress)
    assert str(file) in error.value.message
    with pytest.raises(NotFound):
        client.storage.head("fds://cloudml/changing.bin")


def test_a_killed_upload_goes_on_also_after_the_server_was_killed(
    server: RealServer, way: FlakyWay, client: CloudMlClient, file: Path
) -> None:
    way.up_limit, way.stall = SIZE * 3 // 4, True
    process = start(server, way, "cp", str(file), "fds://cloudml/killed.bin")
    assert way.reached.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    server.kill()
    server.start()
    sent = way.up
    assert sent >= SIZE // 2
    again = FlakyWay(server.port)
    second = start(server, again, "cp", str(file), "fds://cloudml/killed.bin")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert again.up < SIZE // 2
    again.close()
    whole = server.data / "objects" / "cloudml" / "killed.bin"
    assert whole.read_bytes() == file.read_bytes()
    assert list((server.data / "objects" / ".parts").glob("*/*")) == []


def test_a_download_survives_a_cut(
    client: CloudMlClient, way: FlakyWay, file: Path, tmp_path: Path
) -> None:
    client.storage.upload(file, "fds://cloudml/down.bin")
    way.down = 0
    way.down_limit = SIZE // 2
    assert client.storage.download("fds://cloudml/down.bin", tmp_path / "down.bin") == SIZE
    assert way.reached.is_set()
    assert way.down < SIZE + SIZE // 4
    assert (tmp_path / "down.bin").read_bytes() == file.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["big.bin", "down.bin"]


def test_a_killed_download_goes_on(
    server: RealServer, way: FlakyWay, client: CloudMlClient, file: Path, tmp_path: Path
) -> None:
    client.storage.upload(file, "fds://cloudml/later.bin")
    folder = tmp_path / "target"
    folder.mkdir()
    way.down = 0
    way.down_limit, way.stall = SIZE * 3 // 4, True
    process = start(server, way, "cp", "fds://cloudml/later.bin", str(folder))
    assert way.reached.wait(60)
    draft = folder / ".later.bin.cloudml-part"
    eventually(
        lambda: draft.exists() and draft.stat().st_size > SIZE // 2, "what came is written down"
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = FlakyWay(server.port)
    second = start(server, again, "cp", "fds://cloudml/later.bin", str(folder))
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert again.down < SIZE * 3 // 4
    again.close()
    assert [one.name for one in folder.iterdir()] == ["later.bin"]
    assert (folder / "later.bin").read_bytes() == file.read_bytes()


def test_a_replaced_object_is_fetched_anew(
    client: CloudMlClient, file: Path, tmp_path: Path
) -> None:
    uri, target = "fds://cloudml/replaced.bin", tmp_path / "replaced.bin"
    client.storage.upload(b"old", uri)
    (tmp_path / ".replaced.bin.cloudml-part").write_bytes(b"left over")
    (tmp_path / ".replaced.bin.cloudml-version").write_text('"of another version"')
    client.storage.upload(file, uri)
    assert client.storage.download(uri, target) == SIZE
    assert target.read_bytes() == file.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["big.bin", "replaced.bin"]


def test_a_file_of_a_job_is_checked_too(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    (server.data / "objects" / "cloudml" / "of-a-job").write_bytes(b"written in place")
    assert client.storage.download("fds://cloudml/of-a-job", tmp_path / "a") == 16
    assert client.storage.digest("fds://cloudml/of-a-job") is not None


def test_a_pipe_is_sent_as_it_comes(
    server: RealServer, way: FlakyWay, client: CloudMlClient, file: Path
) -> None:
    process = subprocess.run(
        [
            "sh",
            "-c",
            f'cat "$1" | "{CLOUDML}" storage cp - fds://cloudml/piped.bin',
            "sh",
            str(file),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(server.user_home),
            "CLOUDML_ENDPOINT": server.endpoint,
            "CLOUDML_ACCESS_KEY": server.credentials["access_key"],
            "CLOUDML_SECRET_KEY": server.credentials["secret_key"],
            **SETTINGS,
        },
        capture_output=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert client.storage.head("fds://cloudml/piped.bin").size == SIZE


def test_an_open_upload_is_shown_with_its_parts(
    server: RealServer, way: FlakyWay, file: Path
) -> None:
    way.up_limit, way.stall = SIZE // 2, True
    process = start(server, way, "cp", str(file), "fds://cloudml/open.bin")
    assert way.reached.wait(60)
    process.kill()
    process.communicate()
    (upload,) = (server.data / "objects" / ".parts").glob("*/*")
    assert len(list(upload.iterdir())) > 1
    assert not (server.data / "objects" / "cloudml" / "open.bin").exists()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_a_link_works_with_curl(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("by curl")
    write = (
        server.cli("storage", "presign", "fds://cloudml/sp ace/ü+%", "--method", "put")
        .good()
        .out.strip()
    )
    read = (
        server.cli("storage", "presign", "fds://cloudml/sp ace/ü+%", "--expires", "90s")
        .good()
        .out.strip()
    )

    def curl(*arguments: str) -> str:
        return subprocess.run(
            ["curl", "-sS", *arguments], capture_output=True, text=True, check=True
        ).stdout

    assert '"size":7' in curl("-T", str(tmp_path / "a b"), write)
    assert curl(read) == "by curl"
    assert '"code":"unauthenticated"' in curl(
        "-X", "DELETE", read
    ) or "not a known parameter" in curl("-X", "DELETE", read)
    assert curl(read) == "by curl"
    refused = server.cli("storage", "presign", "fds://cloudml/a", "--expires", "soon")
    assert (refused.code, "expires" in refused.err) == (1, True)


@pytest.mark.parametrize("whose", ["the same key", "another key"])
@pytest.mark.parametrize("meanwhile", ["stays", "is replaced"])
def test_two_who_send_the_same_file_to_the_same_place_both_succeed(
    server: RealServer, client: CloudMlClient, file: Path, whose: str, meanwhile: str
) -> None:
    """The other begins and ends while the first is in the middle; both have said the same
    digest.
    """
    uri, ended = "fds://cloudml/twice.bin", list[str]()
    key, secret = server.credentials["access_key"], server.credentials["secret_key"]
    if whose == "another key":
        made = client.admin.create_key("admin")
        key, secret = made.key.access_key, made.secret_key
    with CloudMlClient(key, secret, server.endpoint) as other:

        def tell(done: int, _total: int | None) -> None:
            if done >= SIZE // 2 and not ended:
                ended.append(other.storage.upload(file, uri).etag)
                if meanwhile == "is replaced":
                    other.storage.upload(b"another object", uri)

        stored = client.storage.upload(file, uri, progress=tell)
        assert ended, "the other one was in between"
        assert stored.size == SIZE
        with client.storage.open(uri) as content:
            assert content.read() == file.read_bytes(), (
                "the last who completes is the one whose file is there"
            )
        assert stored.etag == client.storage.head(uri).etag


def test_a_model_folder_that_changes_while_it_is_sent_is_not_stored_as_what_it_was(
    client: CloudMlClient, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, size in (("a.bin", 1 << 16), ("model.onnx", 3 << 20)):
        (folder / name).write_bytes(os.urandom(size))
    (folder / "a.bin").write_bytes(os.urandom(1 << 16))

    def write(name: str, after: int) -> Callable[[int, int | None], None]:
        once: list[int] = []

        def tell(done: int, _total: int | None) -> None:
            if done >= after and not once:
                once.append(done)
                (folder / name).write_bytes(
                    os.urandom(3 << 20 if name == "model.onnx" else 1 << 16)
                )

        return tell

    for name, after in (("model.onnx", 1), ("model.onnx", 1 << 21), ("new.bin", 1 << 21)):
        with pytest.raises(InvalidRequest, match="changed while it was sent"):
            client.storage.send_model(str(folder), "cloudml", progress=write(name, after))
    uri = client.storage.send_model(str(folder), "cloudml")
    for name in ("a.bin", "model.onnx", "new.bin"):
        with client.storage.open(f"{uri}/1/{name}") as content:
            assert content.read() == (folder / name).read_bytes()


def test_a_resumed_download_never_mixes_two_versions(
    client: CloudMlClient, file: Path, tmp_path: Path
) -> None:
    """It is replaced while the connection breaks: what is there already is of the older one."""
    uri, target = "fds://cloudml/resumed.bin", tmp_path / "resumed.bin"
    client.storage.upload(file, uri)
    newer = tmp_path / "newer.bin"
    newer.write_bytes(os.urandom(SIZE))
    replaced: list[int] = []

    def tell(done: int, _total: int | None) -> None:
        if done > SIZE // 4 and not replaced:
            replaced.append(done)
            client.storage.upload(newer, uri)
            raise TransportError("the connection broke")

    assert client.storage.download(uri, target, progress=tell) == SIZE
    assert replaced, "it was in the middle when the object was replaced"
    assert target.read_bytes() == newer.read_bytes()


@pytest.mark.parametrize("size", [1000, SIZE])
@pytest.mark.slow
def test_a_name_of_many_bytes_in_few_characters(
    server: RealServer, client: CloudMlClient, tmp_path: Path, size: int
) -> None:
    """A name has 255 bytes at most, and so have the names of what lies beside it meanwhile."""
    source = tmp_path / "source"
    for name in ("\u6a21" * 84 + "abc", "\u6a21" * 84 + "abd", "x" * 255, "\U0001f6b2" * 63):
        source.write_bytes(os.urandom(size))
        uri, target = f"fds://cloudml/{name}/{name}", tmp_path / name
        client.storage.upload(source, uri)
        interrupted: list[int] = []

        def tell(done: int, _total: int | None, interrupted: list[int] = interrupted) -> None:
            if done and not interrupted:
                interrupted.append(done)
                raise TransportError("the connection broke")

        assert client.storage.download(uri, target, progress=tell) == size
        assert target.read_bytes() == source.read_bytes()
        target.unlink()
        server.cli("storage", "cp", uri, str(tmp_path)).good()
        assert target.read_bytes() == source.read_bytes()
        server.cli("storage", "cp", str(target), f"fds://cloudml/again/{name}").good()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_many_small_files_travel_together(server: RealServer, tmp_path: Path) -> None:
    source, back = tmp_path / "many", tmp_path / "back"
    names = [f"{number % 7}/{number}.bin" for number in range(300)] + ["empty", "sp ace/ü"]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"" if name == "empty" else os.urandom(1 + len(name) * 100))
    (source / "large").write_bytes(os.urandom(1 << 20))
    result = server.cli("storage", "cp", "-r", str(source), "fds://cloudml/many/").good()
    assert "303 copied" in result.err
    result = server.cli("storage", "cp", "-r", "fds://cloudml/many/", str(back)).good()
    assert "303 copied" in result.err
    for name in [*names, "large"]:
        assert (back / name).read_bytes() == (source / name).read_bytes()
    assert not list(back.rglob(".*"))


def test_one_small_file_that_fails_keeps_no_other(server: RealServer, tmp_path: Path) -> None:
    server.cli("storage", "cp", str(CLOUDML), "fds://cloudml/partly/b").good()
    for name in ("a", "b/inside", "c"):
        (tmp_path / "partly" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "partly" / name).write_text(name)
    result = server.cli("storage", "cp", "-r", str(tmp_path / "partly"), "fds://cloudml/partly/")
    assert result.code == 1
    assert "2 copied" in result.err
    assert "b/inside" in result.err
    (tmp_path / "target" / "c").mkdir(parents=True)
    result = server.cli("storage", "cp", "-r", "fds://cloudml/partly/", str(tmp_path / "target"))
    assert result.code == 1
    assert "is a folder" in result.err
    assert (tmp_path / "target" / "a").read_text() == "a"

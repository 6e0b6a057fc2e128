"""A TensorBoard that copies the files it shows: the server's half answers the sandbox's half over a
real socket, from a store that has no folders.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.controller import tensorboard_mirrors
from cloud_ml.controller.tensorboard_mirrors import TensorBoardMirrors
from cloud_ml.domain.tensorboards import spec as tensorboard_spec
from cloud_ml.domain.tensorboards.mirror_requests import (
    ListFiles,
    ReadFile,
    is_shown,
    parse_request,
)
from cloud_ml.domain.tensorboards.spec import TENSORBOARD, TensorBoardRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.models.tracking.tensorboard import TENSORBOARDS
from cloud_ml.observability.metrics import Metrics
from cloud_ml.tensorboard import __main__ as program
from cloud_ml.tensorboard import mirror as sandbox
from cloud_ml.tensorboard.copies import FileKey
from cloud_ml.tensorboard.mirror import Mirror, Piece, RemoteFile, ServerConnection, is_safe
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.tensorboards import source_files
from cloud_ml.usecases.tensorboards.source_files import PIECE, SourceFiles
from support.platform import Served

pytestmark = pytest.mark.anyio

EVENTS = "run/events.out.tfevents.1.host"


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.close()


class OneSocket:
    """Endpoints of the only TensorBoard."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connections = 0

    def address(self, job_uid: str, name: str) -> Any:
        raise Unavailable("nobody connects by itself")

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert name == self._path.name
        try:
            opened = await asyncio.open_unix_connection(self._path, limit=limit)
        except OSError as error:
            raise Unavailable(str(error)) from error
        self.connections += 1
        return opened


class Scene:
    """A TensorBoard on ``fds://cloudml/logs``, its copies below ``folder``, and a server."""

    def __init__(self, served: Served, record: TensorBoardRecord, folder: Path) -> None:
        self.served = served
        self.record = record
        self.copies = folder / "mirror" / "0"
        self.mirror = Mirror(folder / "mirror", 1, 1 << 30)
        self.metrics = Metrics()
        self.endpoints = OneSocket(folder / sandbox.SOCKET)
        self.mirrors = TensorBoardMirrors(
            self.endpoints, SourceFiles(served.platform.storage), Offload(), self.metrics
        )

    def put(self, path: str, content: bytes) -> None:
        self.served.platform.storage._objects.put("cloudml", f"logs/{path}", content)

    def delete(self, path: str) -> None:
        self.served.platform.storage.delete("default", "cloudml", f"logs/{path}")

    def copy(self, path: str) -> bytes | None:
        try:
            return (self.copies / path).read_bytes()
        except OSError:
            return None

    async def becomes(self, path: str, content: bytes | None) -> None:
        async with asyncio.timeout(20):
            while self.copy(path) != content:
                self.mirror.note_request()
                await asyncio.sleep(0.01)  # until the thread has copied

    def requests(self) -> dict[str, float]:
        lines = self.metrics.text().splitlines()
        found = [line for line in lines if line.startswith("cloudml_tensorboard_mirror_requests")]
        return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in found}


@pytest.fixture
async def scene(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "LOOK_S", 0.02)
    made = await served.member.call(
        "POST", TENSORBOARDS.path, {"name": "curves", "logdir": "fds://cloudml/logs/"}
    )
    record = served.store.get(TENSORBOARD, made.json()["uid"])
    assert record is not None
    running = replace(record, status=replace(record.status, phase=Phase.RUNNING))
    scene = Scene(served, running, tmp_path)
    scene.mirror.start()
    task = asyncio.create_task(scene.mirrors.run())
    scene.mirrors.show(running)
    yield scene
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_is_shown_is_copied_as_it_grows(scene: Scene) -> None:
    scene.put(EVENTS, b"a" * 10_000)
    scene.put("model.ckpt", b"never read")
    await scene.becomes(EVENTS, b"a" * 10_000)
    scene.put(EVENTS, b"a" * 10_000 + b"b" * 5)
    await scene.becomes(EVENTS, b"a" * 10_000 + b"b" * 5)
    assert scene.copy("model.ckpt") is None
    scene.delete(EVENTS)
    await scene.becomes(EVENTS, None)


async def test_of_a_file_that_has_grown_only_what_is_new_is_read(scene: Scene) -> None:
    content = random.Random(1).randbytes(3 * PIECE)
    scene.put(EVENTS, content)
    await scene.becomes(EVENTS, content)
    before = scene.requests()["read"]
    scene.put(EVENTS, content + b"more")
    await scene.becomes(EVENTS, content + b"more")
    assert scene.requests()["read"] == before + 1


async def test_another_file_under_the_same_name_replaces_the_copy(scene: Scene) -> None:
    scene.put(EVENTS, b"first" * 2_000)
    await scene.becomes(EVENTS, b"first" * 2_000)
    scene.put(EVENTS, b"second" * 4_000)  # longer
    await scene.becomes(EVENTS, b"second" * 4_000)
    scene.put(EVENTS, b"third")  # shorter
    await scene.becomes(EVENTS, b"third")
    scene.put(EVENTS, b"")
    await scene.becomes(EVENTS, b"")


async def test_nobody_looks_and_nothing_is_asked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.put(EVENTS, b"seen")
    await scene.becomes(EVENTS, b"seen")
    monkeypatch.setattr(sandbox, "ATTENTION_S", 0.0)
    before = None
    async with asyncio.timeout(20):
        while before != scene.requests():  # what is under way ends
            before = scene.requests()
            await asyncio.sleep(0.3)
    scene.put(EVENTS, b"seen and more")
    await asyncio.sleep(0.5)
    assert (scene.requests(), scene.copy(EVENTS)) == (before, b"seen")
    monkeypatch.setattr(sandbox, "ATTENTION_S", 60.0)
    await scene.becomes(EVENTS, b"seen and more")


async def test_the_next_server_answers_when_one_is_gone(scene: Scene) -> None:
    scene.put(EVENTS, b"one")
    await scene.becomes(EVENTS, b"one")
    task = asyncio.create_task(scene.mirrors.run())  # a second one has the lead
    scene.mirrors.drop(scene.record.key.uid)
    await asyncio.sleep(0)
    scene.mirrors.show(scene.record)
    scene.put(EVENTS, b"one and two")
    await scene.becomes(EVENTS, b"one and two")
    task.cancel()


async def test_what_is_no_longer_the_organisations_is_not_read(scene: Scene) -> None:
    scene.put(EVENTS, b"mine")
    await scene.becomes(EVENTS, b"mine")
    storage = scene.served.platform.storage
    files, sources = SourceFiles(storage), scene.record.spec.sources
    assert files.answer("other", sources, ReadFile(0, EVENTS, 0)) == b"{}\n"
    assert json.loads(files.answer("other", sources, ListFiles(0, ""))) == {
        "objects": [],
        "next": None,
    }


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/secret", "a//b", "\0", "\ud800"])
async def test_no_path_leaves_the_source(scene: Scene, path: str) -> None:
    storage = scene.served.platform.storage
    storage._objects.put("cloudml", "secret", b"other")
    found = SourceFiles(storage).answer("default", scene.record.spec.sources, ReadFile(0, path, 0))
    assert found == b"{}\n"


async def test_a_list_of_many_pages_is_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "_PAGE", 100)
    monkeypatch.setattr(sandbox, "LOOK_S", 5.0)
    paths = [f"run-{number}/events.out.tfevents.{number}" for number in range(450)]
    for path in paths:
        scene.put(path, b"x")
    for path in paths:
        await scene.becomes(path, b"x")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[" * 8_000,
        b'{"list": 1, "after": ""}',
        b'{"list": -1, "after": ""}',
        b'{"list": true, "after": ""}',
        b'{"list": 0, "after": null}',
        b'{"read": 0, "path": "", "start": 0}',
        b'{"read": 0, "path": "a", "start": -1}',
        b'{"read": 0, "path": "a", "start": 1.5}',
        b'{"read": 0, "path": "a", "start": 1' + b"0" * 5_000 + b"}",
        b'{"read": 0, "path": "a", "start": 0, "length": 5}',
        b"\xff\xfe",
    ],
)
def test_a_request_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(line, 1)


async def test_whoever_sends_rubbish_is_cut_off_and_others_are_answered(scene: Scene) -> None:
    """A process of the tenant listens where the TensorBoard did."""
    scene.mirrors.drop(scene.record.key.uid)
    path = Path(sandbox.SOCKET)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(20)
        await asyncio.sleep(0)
        scene.mirrors.show(scene.record)
        for sent in (b"x" * 100_000, b'{"list": 9, "after": ""}\n', b"\n"):
            connection, _ = await asyncio.to_thread(listener.accept)
            with connection:
                connection.settimeout(20)
                with contextlib.suppress(OSError):
                    connection.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.to_thread(connection.recv, 1) == b""


def test_copies_end_at_their_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror, store = Mirror(tmp_path, 1, 1_000), FakeServer()
    mirror.find_copies()
    store.objects = {"a.tfevents": b"a" * 600, "b.tfevents": b"b" * 600, "c.tfevents": b"c" * 300}
    mirror.update(store)  # type: ignore[arg-type]
    newest = {"b.tfevents", "c.tfevents"}
    assert {path.name for path in mirror.folder(0).iterdir()} == newest
    mirror.update(store)  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("applications.mirror_bytes") == 1
    del store.objects["b.tfevents"]
    mirror.update(store)  # type: ignore[arg-type]
    assert {path.name for path in mirror.folder(0).iterdir()} == {"a.tfevents", "c.tfevents"}


def test_the_next_attempt_goes_on_with_the_copies(tmp_path: Path) -> None:
    store, files = (
        FakeServer(),
        {"a.tfevents": b"a" * 20_000, "run/b.tfevents": b"b", "c.tfevents": b"c"},
    )
    store.objects = dict(files)
    first = Mirror(tmp_path, 1, 50_000)
    first.find_copies()
    first.update(store)  # type: ignore[arg-type]
    del store.objects["c.tfevents"]
    store.objects["run/b.tfevents"] = b"other"
    store.objects["a.tfevents"] += b"more"
    store.read_bytes = 0
    second = Mirror(tmp_path, 1, 50_000)
    second.find_copies()
    second.update(store)  # type: ignore[arg-type]
    copies = {path: (tmp_path / "0" / path) for path in files}
    assert {path: one.read_bytes() for path, one in copies.items() if one.exists()} == store.objects
    assert store.read_bytes < 5_000, "of a large file only its end is read again"


def test_a_path_that_cannot_be_had_here_does_not_hold_up_the_others(tmp_path: Path) -> None:
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    store.objects = {"a.tfevents": b"a", "a.tfevents/b.tfevents": b"b", "c.tfevents": b"c"}
    mirror.update(store)  # type: ignore[arg-type]
    assert (mirror.folder(0) / "c.tfevents").read_bytes() == b"c"


def test_labels_that_are_written_anew_are_copied_anew(tmp_path: Path) -> None:
    """A table of labels may change at its beginning and be the same at its end."""
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    for label in (b"cat", b"dog", b"a longer one"):
        store.objects = {"metadata.tsv": label + b"\n" + b"same\n" * 2_000}
        assert mirror.update(store)  # type: ignore[arg-type]
        assert (mirror.folder(0) / "metadata.tsv").read_bytes() == store.objects["metadata.tsv"]


def test_a_folder_becomes_a_file_and_a_file_a_folder(tmp_path: Path) -> None:
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    for path in ("a.tfevents/x/b.tfevents", "a.tfevents", "a.tfevents/b.tfevents", "c.tfevents"):
        store.objects = {path: b"one"}
        mirror.update(store)  # type: ignore[arg-type]
        there = [one for one in mirror.folder(0).rglob("*") if one.is_file()]
        assert [str(one.relative_to(mirror.folder(0))) for one in there] == [path]
    assert [one.name for one in mirror.folder(0).iterdir()] == ["c.tfevents"], "no empty folder"


def test_nothing_more_is_read_when_nobody_looks_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    store.objects = {f"{number}.tfevents": b"x" for number in range(50)}

    def look_away() -> None:
        if store.reads == 3:
            monkeypatch.setattr(sandbox, "ATTENTION_S", -1.0)

    store.before_read = look_away
    assert not mirror.update(store)  # type: ignore[arg-type]
    assert store.reads == 4
    newest = sorted(one.name for one in mirror.folder(0).iterdir())
    assert newest == ["46.tfevents", "47.tfevents", "48.tfevents", "49.tfevents"]


def test_changes_are_asked_for_again_while_much_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    store.objects = {f"{number}.tfevents": b"x" for number in range(9)}
    monkeypatch.setattr(sandbox, "LOOK_S", -1.0)
    assert not mirror.update(store)  # type: ignore[arg-type]
    monkeypatch.setattr(sandbox, "LOOK_S", 60.0)
    store.objects["late.tfevents"] = b"late"
    assert mirror.update(store)  # type: ignore[arg-type]
    assert len(list(mirror.folder(0).iterdir())) == 10


def test_a_large_file_is_copied_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, store = Mirror(tmp_path, 1, 1 << 20), FakeServer()
    mirror.find_copies()
    store.objects = {"a.tfevents": bytes(range(250)) * 100, "b.tfevents": b"b"}

    def be_slow() -> None:
        monkeypatch.setattr(mirror, "_deadline", -1.0)

    store.before_read = be_slow
    sizes = []
    while not mirror.update(store):  # type: ignore[arg-type]
        sizes.append((mirror.folder(0) / "a.tfevents").stat().st_size if sizes else 0)
    assert len(set(sizes)) > 5
    copies = {path: (mirror.folder(0) / path).read_bytes() for path in store.objects}
    assert copies == store.objects


def test_the_next_attempt_reads_nothing_of_what_has_not_changed(tmp_path: Path) -> None:
    store = FakeServer()
    store.objects = {f"{number}/a.tfevents": b"x" * number for number in range(1, 20)}
    store.objects["meta.tsv"] = b"labels"
    first = Mirror(tmp_path, 1, 50_000)
    first.find_copies()
    assert first.update(store)  # type: ignore[arg-type]
    first._copies.save()
    with (tmp_path / "0" / "7" / "a.tfevents").open("ab") as file:
        file.write(b"half of what was written when it was killed")
    store.reads = 0
    second = Mirror(tmp_path, 1, 50_000)
    second.find_copies()
    assert second.update(store)  # type: ignore[arg-type]
    assert store.reads == 2, "the one that is not as it was: its end, and then all of it"
    copies = {path: (tmp_path / "0" / path).read_bytes() for path in store.objects}
    assert copies == store.objects


def test_copies_beyond_a_lower_limit_are_removed(tmp_path: Path) -> None:
    store = FakeServer()
    store.objects = {"a.tfevents": b"a" * 900, "b.tfevents": b"b" * 90}
    for limit, names in ((1_000, {"a.tfevents", "b.tfevents"}), (100, {"b.tfevents"})):
        mirror = Mirror(tmp_path, 1, limit)
        mirror.find_copies()
        mirror.update(store)  # type: ignore[arg-type]
        assert {one.name for one in mirror.folder(0).iterdir()} == names


async def test_a_peer_that_takes_nothing_leaves_no_connection_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks until the kernel's buffers are full, then sends what is no request."""
    monkeypatch.setattr(tensorboard_mirrors, "_LONGEST_PAUSE_S", 0.01)
    scene.mirrors.drop(scene.record.key.uid)
    scene.put(EVENTS, b"x" * 60_000)
    path = Path(sandbox.SOCKET)
    path.unlink()
    question = json.dumps({"read": 0, "path": EVENTS, "start": 0}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as peers:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(20)
        await asyncio.sleep(0)
        scene.mirrors.show(scene.record)
        before = _count_descriptors()
        for _ in range(8):  # it connects again when the connection before is over
            peer, _ = await asyncio.to_thread(listener.accept)
            peers.enter_context(peer)
            peer.sendall(4 * question + b"rubbish\n")
        assert _count_descriptors() - before <= 8 + 2, "eight of them are the peer's"


def _count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_any_history_of_writes_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """Files grow, are cut, replaced and removed at any moment, also in the middle of a look."""
    luck = random.Random(7)
    for round_ in range(40):
        mirror, store = Mirror(tmp_path / str(round_), 1, 1 << 30), FakeServer()
        mirror.find_copies()
        names = [f"{name}.tfevents" for name in "abc"]

        def change(store: FakeServer = store, names: list[str] = names) -> None:
            name, content = luck.choice(names), None
            kind = luck.randrange(5)
            old = store.objects.get(name, b"")
            if kind < 3:
                content = old + luck.randbytes(luck.randrange(9_000))
            elif kind == 3:
                content = luck.randbytes(luck.randrange(20_000))
            if content is None:
                store.objects.pop(name, None)
            else:
                store.objects[name] = content

        store.before_read = lambda change=change: change() if luck.random() < 0.3 else None
        for _ in range(20):
            change()
            mirror.update(store)  # type: ignore[arg-type]
        store.before_read = lambda: None
        mirror.update(store)  # type: ignore[arg-type]
        copies = {one.name: one.read_bytes() for one in mirror.folder(0).iterdir()}
        assert copies == store.objects


class FakeServer:
    """A store that may change between any two requests."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.before_read: Any = lambda: None
        self.read_bytes = self.reads = 0

    def files(self, source: int) -> Iterator[RemoteFile]:
        for at, (path, content) in enumerate(list(self.objects.items())):
            yield RemoteFile(source, path, len(content), _etag(content), at)

    def read(self, key: FileKey, start: int) -> Piece | None:
        self.before_read()
        self.reads += 1
        content = self.objects.get(key.path)
        if content is None:
            return None
        piece = content[start : start + 5_000]
        self.read_bytes += len(piece)
        return Piece(len(content), _etag(content), piece)


def _etag(content: bytes) -> str:
    return str(hash(content))


def test_what_tensorboard_reads_is_shown() -> None:
    shown = ["events.out.tfevents.1", "a/plugins/profile/1/host.xplane.pb", "a/metadata.tsv",
             "projector_config.pbtxt", "a/sprite.png"]  # fmt: skip
    hidden = ["a/model.ckpt", "", "a/"]
    assert [path for path in shown + hidden if is_shown(path)] == shown
    leaving = ["a/../b.tfevents", "/b.tfevents", "..", "a//b", "a\0b"]
    assert not [path for path in leaving if is_safe(path)]


def test_both_halves_have_the_same_names() -> None:
    assert tensorboard_spec.MIRROR_SOCKET == sandbox.SOCKET
    assert program._MIRROR_BYTES == tensorboard_spec.MIRROR_BYTES


def test_an_answer_that_is_cut_is_no_content() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b'{"size": 8, "etag": "e", "length": 8}\n1234')
        there.shutdown(socket.SHUT_WR)
        with contextlib.closing(ServerConnection(here)) as server, pytest.raises(ConnectionError):
            server.read(FileKey(0, "a"), 0)

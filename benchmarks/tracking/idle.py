"""What metrics and a TensorBoard cost a server while nobody looks: memory, and what is used of the
object store. Beside it TensorBoard as it is started by hand, which reads its folder again and again.
Run: ``python benchmarks/run.py tracking.idle`` (IDLE_S=600: the whole; 60 by default).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from harness import (
    Figure,
    Server,
    finished,
    free_port,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)
from idle import memory_mb
from peers.having import Absent, folder_of, version_of

from cloud_ml.client import CloudMlClient
from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.tracking.tensorboard import NewTensorBoard
from cloud_ml.tensorboard.mirror import ATTENTION_S, LOOK_S
from tracking.event_files import simple_value, write

WINDOW_S = float(os.environ.get("IDLE_S", "60"))
_EVENTS_MB = 0.05
_FILE = "events.out.tfevents.1.host"
_BUCKET = "boards"
_PAUSE_S, _LIMIT_S = 3, 240.0
_MOST_MORE_MB = 20.0
_ROOMS = ("collector", "gateway")
_IN_ACCESS, _IN_OPEN = 0x01, 0x20


def run() -> list[Figure]:
    with temporary_folder() as folder:
        (logs := folder / "logs").mkdir()
        write(logs / _FILE, simple_value, _EVENTS_MB)
        port = free_port()
        settings = {"CLOUDML_APPLICATIONS_PORT": port, "CLOUDML_APPLICATIONS_IDLE_S": _PAUSE_S}
        with serving(**settings) as server:
            more_mb, note, used = _ours(server, folder, logs / _FILE)
        settings = {"CLOUDML_APPLICATIONS_PORT": free_port(), "CLOUDML_APPLICATIONS_MIRROR": "true"}
        with serving(**settings) as server:
            used_awake = _that_copies(server, logs / _FILE)
        beside = _by_hand(logs)
    peer_mb, peer_used, name = beside or (None, None, "")
    minutes = f"{WINDOW_S / 60:.2g} min"
    return [
        Figure("memory (PSS) that the collector and a paused TensorBoard add to a server", more_mb,
               "MB", _MOST_MORE_MB, peer_mb, name, note=note),
        Figure(f"requests for objects in {minutes}, TensorBoard paused",
               used, "", 0, peer_used, name),
        Figure(f"requests for objects in {minutes}, TensorBoard that copies runs, nobody looks",
               used_awake, "", 0, peer_used, name),
    ]  # fmt: skip


def _ours(server: Server, folder: Path, events: Path) -> tuple[float, str, int]:
    """MB more than before there was a metric, which processes have them, and how often the object
    store was used.
    """
    client, calls = server.client(), server.calls()
    finished(calls, calls.submit(train_job("plain", upload(client, wheel(folder, "pass\n")))))
    time.sleep(2)  # what follows an end is not idleness
    before = memory_mb(server.tree)
    # The collector starts with the first event file, which a job writes into its working folder.
    source = f"open({_FILE!r}, 'wb').write({events.read_bytes()!r})\n"
    writes = upload(client, wheel(folder, source, "2.0"))
    finished(calls, calls.submit(train_job("writes", writes)))
    _await(lambda: bool(list(client.get_train_job("writes").series())), "its points are there")
    _show_board(client, events)
    time.sleep(2)
    collector, gateway = (_pids_of(server, f"cloud_ml.{room}.main") for room in _ROOMS)
    assert collector, "the collector has ended"
    assert not _pids_of(server, "cloud_ml.tensorboard"), "a TensorBoard runs"
    after = memory_mb(server.tree)
    note = f"collector {memory_mb(collector):.1f}, gateway {memory_mb(gateway):.1f}"
    used = count_uses(_buckets(server), WINDOW_S)
    assert client.tensorboards.describe("board").phase == "Paused"
    client.tensorboards.delete("board")
    return after - before, note, used


def _that_copies(server: Server, events: Path) -> int:
    """How often the object store is used by a TensorBoard that copies what it shows, and runs, when
    nobody has looked at it for a while.
    """
    client = server.client()
    _create_board(client, events)
    _await(lambda: client.tensorboards.describe("board").phase == "Running", "it runs")
    page = f"{server.endpoint}/metrics"
    _await(lambda: b'what="read"' in _page(page), "it has copied")
    time.sleep(ATTENTION_S + LOOK_S)
    used = count_uses(_buckets(server), WINDOW_S)
    assert client.tensorboards.describe("board").phase == "Running"
    return used


def _show_board(client: CloudMlClient, events: Path) -> None:
    """A TensorBoard on a bucket, which has run and is paused, as nobody looked."""
    _create_board(client, events)

    def is_paused() -> bool:
        board = client.tensorboards.describe("board")
        assert board.phase != "Failed", board.message
        return board.phase == "Paused"

    _await(is_paused, "the TensorBoard is paused")
    assert "Idle" in [event.reason for event in client.tensorboards.events("board")]


def _create_board(client: CloudMlClient, events: Path) -> None:
    client.storage.create_bucket(_BUCKET)
    client.storage.upload_file(events, f"fds://{_BUCKET}/runs/{_FILE}")
    client.tensorboards.create(NewTensorBoard(name="board", logdir=f"fds://{_BUCKET}/runs/"))


def _buckets(server: Server) -> list[Path]:
    """Their folders. Beside them are folders of the store's own: in one of them the server looks for
    uploads that nobody has ended, once in a while, with or without TensorBoards.
    """
    found = [one for one in (server.data / "objects").iterdir() if one.name[0] != "."]
    assert _BUCKET in [one.name for one in found], found
    return found


def _pids_of(server: Server, module: str) -> list[int]:
    """The processes of a server that run a module."""
    return [
        pid for pid in server.tree if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _by_hand(logs: Path) -> tuple[float, int, str] | None:
    """MB and opens of TensorBoard on the same folder, while nobody looks."""
    try:
        program = folder_of("tensorboard") / "bin" / "tensorboard"
    except Absent as error:
        print(f"  {error}")
        return None
    port = free_port()
    process = subprocess.Popen(
        [program, "--logdir", logs, "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}/data/plugin/scalars/tags"
        _await(lambda: b"train/loss" in _page(url), "TensorBoard shows the file")
        used = count_uses([logs], WINDOW_S)
        pids = [process.pid, *proctree.descendants(process.pid)]
        return memory_mb(pids), used, f"TensorBoard {version_of('tensorboard')} by hand"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _page(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, ConnectionError):
        return b""


def _await(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"in vain for {_LIMIT_S:g} s: {what}")
        time.sleep(0.2)


def count_uses(folders: Sequence[Path], seconds: float) -> int:
    """How often any process opens or reads something in folders or below them: what would be requests to
    an object store elsewhere. The kernel says so (inotify), also of other mounts of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    try:
        for root, _, _ in chain.from_iterable(map(os.walk, folders)):
            number = libc.inotify_add_watch(watch, os.fsencode(root), _IN_ACCESS | _IN_OPEN)
            assert number >= 0, os.strerror(ctypes.get_errno())
        _read_events(watch)  # those of the walk itself
        found, end = 0, time.monotonic() + seconds
        # At once: the kernel merges an event with one like it that is not read yet.
        while (left := end - time.monotonic()) > 0 and select.select([watch], [], [], left)[0]:
            found += _read_events(watch)
        return found
    finally:
        os.close(watch)


def _read_events(watch: int) -> int:
    """How many events are there."""
    try:
        data = os.read(watch, 1 << 16)
    except BlockingIOError:
        return 0
    found = at = 0
    while at < len(data):
        # int wd; uint32_t mask, cookie, len; and a name of that length.
        at += 16 + struct.unpack_from("<I", data, at + 12)[0]
        found += 1
    return found

"""The collector, as a real process: what it cannot do, and how the server does without it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.collector.client import CollectorProcess
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.usecases.metrics.parsing import EventSession, NoParser, PatternProblem, UnreadableFile
from support.event_files import EVENT_WRITER

USER = 65_534 if os.geteuid() == 0 else 0
BEGINNING = """
import os, socket, sys
sys.path.insert(0, {source!r})
from cloud_ml.collector import fences, frames
line = socket.socket(fileno=0)
line.sendall(frames.pack({{"ready": True}}))
GOOD = {{"names": ["a"], "taken": 2, "size": 5, "broken": "", "sessions": [[0, 0, None]]}}
def requests():
    while True:
        first, files, _, _ = socket.recv_fds(line, 8, 1)
        yield frames.receive(line, first, 65536)[0]
for request in requests():
"""
SOURCE = str(Path(__file__).parents[3] / "src")


def program(body: str) -> list[str]:
    """A collector that does this with each request."""
    return [sys.executable, "-c", BEGINNING.format(source=SOURCE) + f"    {body}\n"]


@pytest.fixture
def collector() -> Iterator[CollectorProcess]:
    made = CollectorProcess(USER)
    yield made
    made.close()


@pytest.fixture
def writer() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(EVENT_WRITER, names)  # as a trainer does
    return names


def file_of(data: bytes) -> int:
    descriptor = os.memfd_create("test")
    os.write(descriptor, data)
    return descriptor


def test_points_are_read_piece_by_piece(collector: CollectorProcess, writer: dict) -> None:  # type: ignore[type-arg]
    records = [writer["scalar"]("loss", 1 / (1 + step), step) for step in range(30_000)]
    data = b"".join(records[:20_000]) + writer["start"](19_000) + b"".join(records[20_000:])
    descriptor = file_of(data)
    found: list[Value] = []
    at, session, calls = 0, EventSession(), 0
    while at < len(data):
        piece = collector.read_events(descriptor, at, session)
        found += piece.values
        at, session, calls = at + piece.taken, piece.session, calls + 1
    assert [one.step for one in found] == list(range(30_000))
    assert {(one.restart, one.purge) for one in found} == {(0, None), (1, 19_000)}
    assert session == EventSession(1, 19_000)
    assert calls > 1
    os.close(descriptor)


def test_a_log_is_read(collector: CollectorProcess) -> None:
    data = b"Epoch: 3, loss: 0.25\nEpoch: 4, loss: nan"
    descriptor = file_of(b"xxx" + data)
    piece = collector.read_log(
        descriptor, 3, len(data), patterns=["epoch"], steps={}, at=5, final=True
    )
    assert repr(piece.values) == repr(
        [Value("loss", 3, 5, 0.25), Value("loss", 4, 5, float("nan"))]
    )
    assert piece.taken == len(data)
    os.close(descriptor)


def test_patterns_are_checked(collector: CollectorProcess) -> None:
    assert collector.check_patterns(["keras", r"(?P<a>\d)"]) is None
    problem = collector.check_patterns(["keras", "("])
    assert problem == PatternProblem("(", "it is no RE2 pattern: missing ): (")
    assert collector.check_patterns(["a|b", "^x.*y$"], search=True) is None
    problem = collector.check_patterns(["a", "(?=b)"], search=True)
    assert problem == PatternProblem("(?=b)", "it is no RE2 pattern: invalid perl operator: (?=")


def test_it_has_no_rights(collector: CollectorProcess) -> None:
    assert collector.check_patterns(["keras"]) is None
    process = Path(f"/proc/{collector.pid}")
    status = dict(
        line.split(":\t", 1)
        for line in (process / "status").read_text().splitlines()
        if ":\t" in line
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) == 0
    if os.geteuid() == 0:
        assert status["Uid"].split() == 4 * ["65534"]
        assert status["Groups"].strip() == ""
        ours, its = Path("/proc/self/ns/net").stat(), (process / "ns/net").stat()
        assert ours.st_ino != its.st_ino
    limits = {
        line[:26].strip(): line.split()[-2]
        for line in (process / "limits").read_text().splitlines()
    }
    assert limits["Max core file size"] == "0"
    assert limits["Max file size"] == "0"
    variables = (process / "environ").read_bytes()
    assert b"CLOUDML" not in variables
    assert len(list((process / "fd").iterdir())) <= 4


ESCAPES = """
import os, socket, sys
sys.path.insert(0, {source!r})
from cloud_ml.collector import fences, frames
line = socket.socket(fileno=0)
fences.give_up_rights({user!r} or None)
def tries():
    yield lambda: os.open("/etc/passwd", os.O_RDONLY)
    yield lambda: os.open("/tmp/escaped", os.O_CREAT | os.O_WRONLY)
    yield lambda: socket.socket()
    yield lambda: socket.socket(socket.AF_UNIX)
    yield lambda: os.fork()
    yield lambda: os.execv("/bin/true", ["true"])
    yield lambda: os.kill(os.getppid(), 0)
    yield lambda: os.setuid(0)
    yield lambda: os.listdir("/proc")
    yield lambda: os.mkdir("/tmp/escaped")
    yield lambda: os.memfd_create("x")
    yield lambda: os.chdir("/tmp")
done = []
for number, one in enumerate(tries()):
    try:
        one()
        done.append(number)
    except OSError:
        pass
line.sendall(frames.pack({{"ready": True}}))
first, _, _, _ = socket.recv_fds(line, 8, 1)
frames.receive(line, first, 65536)
line.sendall(frames.pack({{"pattern": "done", "refused": str(done)}}))
"""


def test_who_takes_it_over_can_open_and_start_nothing() -> None:
    code = ESCAPES.format(source=SOURCE, user=USER)
    collector = CollectorProcess(program=[sys.executable, "-c", code])
    assert collector.check_patterns(["x"]) == PatternProblem("done", "[]")
    collector.close()


def test_one_that_was_killed_is_replaced(collector: CollectorProcess) -> None:
    assert collector.check_patterns(["keras"]) is None
    before = collector.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert collector.check_patterns(["keras"]) is None
    assert collector.pid != before


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("os.kill(os.getpid(), 11)", "collector of metrics was ended by SIGSEGV"),
        ("os._exit(3)", "collector of metrics ended with exit code 3"),
        ("fences.CPU_S = 0.2; fences.begin_request(); [None for _ in iter(int, 1)]", "processor time"),
        ("line.sendall(b'x' * 100)", "a frame of"),
        ("line.sendall(frames.pack({}))", "wrong answer"),
        ("line.sendall(frames.pack({**GOOD, 'taken': 9}))", "wrong answer"),
        ("line.sendall(frames.pack(GOOD, [(7, 1, 1, 1.0)]))", "wrong answer"),
        ("line.sendall(frames.pack(GOOD, [(0, 1, -1, 1.0)]))", "wrong answer"),
        ("line.sendall(frames.pack({**GOOD, 'names': ['a' * 251]}))", "wrong answer"),
    ],
)  # fmt: skip
def test_a_file_that_it_does_not_survive_is_named(body: str, why: str) -> None:
    collector = CollectorProcess(program=program(body))
    descriptor = file_of(b"hostile")
    with pytest.raises(UnreadableFile, match=why):
        collector.read_events(descriptor, 0, EventSession())
    assert collector.pid is None
    os.close(descriptor)


def test_no_file_is_to_blame_if_somebody_kills_it(tmp_path: Path) -> None:
    """Kills itself as the kernel does that has no memory; the last one of ten does not."""
    seen = tmp_path / "seen"
    body = f"""
    with open({str(seen)!r}, "a+") as file:
        file.write("x")
        count = file.tell()
    if count % 10:
        os.kill(os.getpid(), 9)
    line.sendall(frames.pack({{}}))
"""
    collector = CollectorProcess(program=program(body.strip()))
    assert collector.check_patterns(["keras"]) is None
    collector.close()
    assert len(seen.read_text()) == 10
    descriptor = file_of(b"good")
    always = CollectorProcess(program=program("os.kill(os.getpid(), 9)"))
    with pytest.raises(NoParser, match="was ended by SIGKILL, 10 times in a row"):
        always.read_events(descriptor, 0, EventSession())
    os.close(descriptor)


def test_one_that_says_nothing_is_ended() -> None:
    collector = CollectorProcess(program=program("pass"), answer_s=0.2)
    descriptor = file_of(b"hostile")
    with pytest.raises(UnreadableFile, match=r"no answer within 0.2 s"):
        collector.read_events(descriptor, 0, EventSession())
    os.close(descriptor)


def test_without_a_process_no_file_is_to_blame() -> None:
    collector = CollectorProcess(program=[sys.executable, "-c", "raise SystemExit(7)"])
    descriptor = file_of(b"data")
    with pytest.raises(
        NoParser, match="does not start: the collector of metrics ended with exit code 7"
    ):
        collector.read_events(descriptor, 0, EventSession())
    os.close(descriptor)


def test_a_module_that_is_not_installed_is_named() -> None:
    collector = CollectorProcess(program=[sys.executable, "-c", "import not_installed"])
    with pytest.raises(NoParser, match=r"exit code 1: .*No module named 'not_installed'"):
        collector.check_patterns(["x"])


def test_a_program_that_is_not_there_is_no_fault_of_a_file() -> None:
    collector = CollectorProcess(program=["/nonexistent"])
    with pytest.raises(NoParser, match=r"does not start: .*No such file"):
        collector.check_patterns(["x"])


def test_it_ends_when_nothing_is_asked() -> None:
    collector = CollectorProcess(idle_s=0.0)
    collector.check_patterns(["keras"])
    timer = collector._timer
    if timer is not None:
        timer.join()
    assert collector.pid is None

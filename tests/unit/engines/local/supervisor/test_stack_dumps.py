"""Which processes are asked for their stacks, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cloud_ml.environments
from cloud_ml.engines.local.logs.logfile import LogWriter
from cloud_ml.engines.local.processes.watched import WatchedTree
from cloud_ml.engines.local.supervisor.stack_dumps import MOST_PROCESSES, StackDumps

HOOK = Path(cloud_ml.environments.__file__).parent / "compat" / "job"
PROGRAM = """
import site, sys
if "hook" in sys.argv:
    site.addsitedir(sys.argv[-1])
def wait_for_orders():
    print("ready", file=sys.stdout, flush=True)
    return sys.stdin.readline()
wait_for_orders()
"""


class Held(WatchedTree):
    """A group that holds just these processes."""

    def __init__(self, *pids: int) -> None:
        super().__init__()
        self.pids = list(pids)

    def processes(self) -> list[int]:
        return self.pids


@contextmanager
def started(errors: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, str(HOOK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        assert process.poll() is None
        process.communicate(b"\n")
    assert process.returncode == 0


def test_a_python_process_shows_its_stacks_and_runs_on(tmp_path: Path) -> None:
    output, errors = os.pipe()
    log, dumps = LogWriter(tmp_path, "master-0", 1 << 20), StackDumps()
    with started(errors, "hook") as process:
        dumps.ask("master-0", Held(process.pid), output, log, now=1.0)
        assert dumps.due_at == 1.0
        dumps.dump_due(1.0)
        assert dumps.due_at is not None, "it has time to answer"
        dumps.dump_due(dumps.due_at)
        assert dumps.due_at is None
        shown = b""
        while b" in wait_for_orders" not in shown:  # it comes in pieces
            shown += os.read(output, 1 << 16)
        assert b"most recent call first" in shown
    dump = log.tail.decode()
    assert dump.startswith(f"cloudml: stacks of master-0, process {process.pid} (python")


def test_a_process_that_has_no_handler_is_left_alone(tmp_path: Path) -> None:
    output, errors = os.pipe()
    log, dumps = LogWriter(tmp_path, "master-0", 1 << 20), StackDumps()
    with started(errors) as process:
        dumps.ask("master-0", Held(process.pid, 1 << 30), output, log, now=1.0)
    assert dumps.due_at is None
    assert log.tail == b"cloudml: no process of master-0 can show its stacks\n"


def test_nothing_is_written_to_a_file_of_the_user(tmp_path: Path) -> None:
    output, _ = os.pipe()
    log, dumps = LogWriter(tmp_path, "master-0", 1 << 20), StackDumps()
    own = tmp_path / "errors.txt"
    with own.open("wb") as file, started(file.fileno(), "hook") as process:
        dumps.ask("master-0", Held(process.pid), output, log, now=1.0)
    assert b"no process" in log.tail
    assert own.read_bytes() == b""


def test_a_process_that_is_no_more_of_the_task_is_left_alone(tmp_path: Path) -> None:
    output, errors = os.pipe()
    os.set_blocking(output, False)
    log, dumps = LogWriter(tmp_path, "master-0", 1 << 20), StackDumps()
    with started(errors, "hook") as process:
        group = Held(process.pid)
        dumps.ask("master-0", group, output, log, now=1.0)
        group.pids = []
        dumps.dump_due(1.0)
        dumps.ask("master-0", Held(process.pid), output, log, now=2.0)
        dumps.drop("master-0")
        dumps.dump_due(2.0)
    assert (dumps.due_at, log.tail) == (None, b"")


def test_no_more_than_so_many_processes_are_asked(tmp_path: Path) -> None:
    output, errors = os.pipe()
    log, dumps = LogWriter(tmp_path, "master-0", 1 << 20), StackDumps()
    with started(errors, "hook") as process:
        group = Held(*[process.pid] * (MOST_PROCESSES + 5))
        dumps.ask("master-0", group, output, log, now=0.0)
        for tick in range(MOST_PROCESSES + 5):
            dumps.dump_due(float(tick))
    assert log.tail.count(b"stacks of master-0") == MOST_PROCESSES

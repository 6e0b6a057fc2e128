"""Asks Python processes of a task for the stacks of all their threads, which go to its log.

``environments/compat/job/cloud_ml_stacks.pth`` is the other side, in the process. The signal does
nothing to a process without a handler of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.logs.merged_log import TaskWriter, write_line
from cloud_ml.engines.local.small_files import content
from cloud_ml.models.paths.escaping import escape_path
from cloud_ml.process_handles import ProcessHandle

SIGNAL = signal.SIGURG
MOST_PROCESSES = 32
"""So many processes of a task are asked."""
_PAUSE_S = 0.1
"""Between two processes, so that their stacks are not mixed."""


@dataclass(frozen=True)
class _Dump:
    """A process that is to be asked. ``pid`` is the number on this machine."""

    name: str
    pid: int
    group: Group
    output: int
    log: TaskWriter


class StackDumps:
    """The processes that are still to be asked. The caller calls ``dump_due`` at ``due_at``
    (monotonic time) or later. It is ``None`` when all have been asked and had time to answer.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Dump] = deque()
        self.due_at: float | None = None

    def ask(
        self,
        name: str,
        group: Group,
        output: int,
        log: TaskWriter,
        *,
        now: float,
        without: Collection[int] = (),
    ) -> None:
        """Have the processes of a task asked, one after the other.

        Args:
            name: The task.
            group: Holds its processes, and no others.
            output: The pipe that its log is read from. A process whose standard error is something
                else is left alone: it may be a file of the user's.
            log: Its log.
            now: The time.
            without: Processes that are not asked.
        """
        able = [pid for pid in group.processes() if pid not in without and _able(pid, output)]
        if not able and not without:
            write_line(log, f"cloudml: no process of {name} can show its stacks")
        for pid in able[:MOST_PROCESSES]:
            self._waiting.append(_Dump(name, pid, group, output, log))
        if self._waiting and self.due_at is None:
            self.due_at = now

    def drop(self, name: str) -> None:
        """The task has ended."""
        self._waiting = deque(one for one in self._waiting if one.name != name)

    def dump_due(self, now: float) -> None:
        """Ask the next process, if it is time."""
        if self.due_at is None or now < self.due_at:
            return
        sent = False
        while self._waiting and not sent:
            sent = _dump(self._waiting.popleft())
        self.due_at = now + _PAUSE_S if sent else None


def _dump(dump: _Dump) -> bool:
    """Ask one process; false if it is gone, or another one has its number."""

    def is_expected(pid: int) -> bool:
        return pid in dump.group.processes() and _able(pid, dump.output)

    handle = ProcessHandle.open(dump.pid, is_expected)
    if handle is None:
        return False
    with handle:
        inside, program = _names(dump.pid)
        write_line(dump.log, f"cloudml: stacks of {dump.name}, process {inside} ({program})")
        handle.send(SIGNAL)
    return True


def _able(pid: int, output: int) -> bool:
    """Whether the process has a handler of the signal, and writes its errors to the log."""
    return _catches(pid) and _writes_to(pid, output)


def _catches(pid: int) -> bool:
    with contextlib.suppress(ValueError):
        return bool(int(_status(pid, b"SigCgt:"), 16) >> (SIGNAL - 1) & 1)
    return False


def _writes_to(pid: int, output: int) -> bool:
    """Whether its standard error is the pipe. The file itself is not touched: it may be on a file
    system of the job's that never answers.
    """
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/2") == f"pipe:[{os.fstat(output).st_ino}]"  # noqa: PTH115
    return False


def _names(pid: int) -> tuple[str, str]:
    """Its number as its task sees it, and what it calls itself."""
    numbers: Sequence[bytes] = _status(pid, b"NSpid:").split() or [b"?"]
    return numbers[-1].decode("ascii", "replace"), escape_path(_status(pid, b"Name:"))


def _status(pid: int, field: bytes) -> bytes:
    """A field of what the kernel says of a process; empty if it is gone."""
    with contextlib.suppress(OSError):
        for line in content(f"/proc/{pid}/status").splitlines():
            if line.startswith(field):
                return line[len(field) :].strip()
    return b""

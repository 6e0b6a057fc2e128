"""Processes by descent: finding them, signalling them, and making sure that none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from cloud_ml.engines.local.small_files import content


def children(pid: int) -> list[int]:
    """Direct children of all threads of ``pid``."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            found += map(int, content(f"/proc/{pid}/task/{thread}/children").split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Everything below ``pid``, parents first; of any depth, since a job may start a chain of
    thousands.
    """
    waiting = [pid]
    while waiting:
        found = children(waiting.pop())
        yield from found
        waiting += found


def main_process(pid: int, *, sandboxed: bool) -> int | None:
    """The user's own first process of a command started as ``pid``.

    Below bubblewrap it is the child of the sandbox's init, which is bubblewrap's child.
    """
    if not sandboxed:
        return pid
    init = next(iter(children(pid)), None)
    return next(iter(children(init)), None) if init else None


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone is success."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def bury_orphans(known: Collection[int]) -> None:
    """Wait for children that have ended, but for ``known`` ones: whose parent went before them is
    nobody's else.

    Without it a job that starts daemons for hours fills its limit of processes with dead ones.
    """
    with contextlib.suppress(ChildProcessError):
        # WNOWAIT leaves the child as it is, since the end of a known one is collected elsewhere.
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            # waitid(2) would name this one again each time. The others are waited for after it is
            # collected.
            if ended.si_pid in known:
                return
            os.waitpid(ended.si_pid, 0)


def end_all_descendants(limit_s: float = 10.0) -> bool:
    """SIGKILL whatever descends from this process until nothing is left to wait for.

    The caller is a subreaper, so daemons and orphans count too. Returns false when something is
    still there after ``limit_s`` (a process stuck in the kernel).
    """
    deadline = time.monotonic() + limit_s
    pause = 0.0005
    while True:
        # List again each time: a killed process may have forked before it died.
        for pid in list(descendants(os.getpid())):
            send(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        # No child is left. A subreaper inherits orphans, so nothing else descends from this
        # process.
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def find_marked(marker: str) -> list[int]:
    """Processes of this machine whose first environment held ``marker`` (``NAME=value``)."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found

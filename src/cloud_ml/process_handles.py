"""Processes of a data folder, found and signalled so that none is mistaken for another one with its
number.

A process id is used again after its process has ended. A handle (a pidfd) is not: it names one
process for good.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from cloud_ml.data_folder import user_name
from cloud_ml.errors import Forbidden

_STANDARD_ERROR = 2


class ProcessHandle:
    """One process. Close it after use; it is a context manager."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    @classmethod
    def open(cls, pid: int, is_expected: Callable[[int], bool]) -> ProcessHandle | None:
        """The process ``pid`` if ``is_expected`` says so of it, asked while the handle holds it;
        else ``None``.
        """
        try:
            handle = cls(pid, os.pidfd_open(pid))
        # The number comes from a file, so it may be none that a process can have.
        except (OSError, ValueError, OverflowError):
            return None
        # In this order: as long as the process lives, no other has its number.
        if is_expected(pid) and handle.is_alive:
            return handle
        handle.close()
        return None

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.wait(0.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended is success.

        Raises:
            Forbidden: The process belongs to another user.
        """
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            owner = owner_name(Path(f"/proc/{self.pid}"))
            raise Forbidden(
                f"process {self.pid} belongs to the user {owner}, and this command runs as "
                f"{own_user_name()}",
                hint=f"Run this command as {owner} or as root.",
            ) from error

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; false if it has not within the time."""
        # A pidfd becomes readable when its process ends, also for one that is no child of this
        # process.
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout_s) * 1000))

    def close(self) -> None:
        """Give the handle back."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_for_all(handles: Sequence[ProcessHandle], timeout_s: float) -> list[ProcessHandle]:
    """Wait until all of them have ended, or the time is over; returns those that live."""
    deadline = time.monotonic() + timeout_s
    return [handle for handle in handles if not handle.wait(deadline - time.monotonic())]


def with_log_in(folder: Path) -> Iterable[int]:
    """Processes whose standard error is a file in ``folder``: daemons of a data folder write
    their logs there.
    """
    inside = f"{os.path.realpath(folder)}/"
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and logs_into(int(name), inside):
            yield int(name)


def logs_into(pid: int, inside: str) -> bool:
    """Whether the standard error of ``pid`` is a file whose path begins with ``inside``."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/fd/{_STANDARD_ERROR}").readlink()).startswith(inside)
    return False


def has_open(pid: int, file: os.stat_result) -> bool:
    """Whether ``pid`` has that file open."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"{folder}/{name}"), file):  # noqa: PTH116
                    return True
    return False


def own_user_name() -> str:
    """The name of the user of this process."""
    return user_name(os.geteuid())


def owner_name(path: Path) -> str:
    """The name of the user who owns a file."""
    with contextlib.suppress(OSError):
        return user_name(path.stat().st_uid)
    return "another one"

"""Running a tool: bounded in time, no shell, its words passed on as they come."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence

Output = Callable[[bytes], None]
Guard = Callable[[], str | None]
_GUARD_S = 0.25


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    output: Output,
    folder: str = "/",
    guard: Guard = lambda: None,
) -> int:
    """Run ``command`` in ``folder`` with exactly ``environment`` and return its exit code.

    Standard output and standard error go to ``output`` in the order they come. After ``timeout_s``
    seconds the tool and what it started are killed, and as soon as ``guard``, which is asked now
    and then, says why.

    Raises:
        TimeoutError: It did not end in time.
        OSError: It could not be started, or ``guard`` has ended it.
    """
    import subprocess  # noqa: PLC0415 -- most preparations start no process at all

    process = subprocess.Popen(  # noqa: S603 -- the command is ours, its arguments are no shell's
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        # Use a separate process group, so that the tool's children can be killed with it.
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as pipe:
        try:
            _drain(pipe.fileno(), time.monotonic() + timeout_s, output, guard)
            return process.wait(timeout=timeout_s)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise TimeoutError(f"{command[0]} did not end within {timeout_s:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _drain(descriptor: int, deadline: float, output: Output, guard: Guard) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    while (left := deadline - time.monotonic()) > 0:
        if (why := guard()) is not None:
            raise OSError(why)
        if poller.poll(min(left, _GUARD_S) * 1000):
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return
            output(chunk)
    raise TimeoutError


class OutputTail:
    """Collects what a tool says, keeping the end of it, to be shown only if the tool fails."""

    def __init__(self, limit: int = 64 * 1024) -> None:
        self._limit = limit
        self._kept = b""

    def __call__(self, chunk: bytes) -> None:
        self._kept = (self._kept + chunk)[-self._limit :]

    @property
    def kept(self) -> bytes:
        """The last words, ending with a line break unless there are none."""
        return self._kept if not self._kept or self._kept.endswith(b"\n") else self._kept + b"\n"

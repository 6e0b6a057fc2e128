"""Programs on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

DRAWN_ANEW = "\r\x1b[K"


@dataclass(frozen=True)
class Seen:
    """A program that has ended, and every byte that its terminal got."""

    code: int
    seen: str


def _as_a_shell_does() -> None:
    """Whoever was started in the background ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def on_a_terminal(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    columns: int = 80,
    cwd: str | None = None,
    react: Callable[[str, int], bytes] = lambda _seen, _pid: b"",
) -> Seen:
    """Run a program on a terminal of ``columns``.

    ``react`` is given all that was seen so far, whenever there is more, and the process; it returns
    what to type.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    surroundings = {"TERM": "xterm", **environment}
    seen = b""
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=surroundings,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_as_a_shell_does,  # noqa: PLW1509 - it takes no lock
    ) as process:
        os.close(theirs)
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other side of the terminal is closed
                break
            if not chunk:
                break
            seen += chunk
            if typed := react(seen.decode(errors="replace"), process.pid):
                os.write(ours, typed)
        code = process.wait()
    os.close(ours)
    return Seen(code, seen.decode())


def interrupting(when: Callable[[str], bool]) -> Callable[[str, int], bytes]:
    """A reaction: Ctrl-C, once, as soon as ``when`` holds of what was seen."""
    done: list[bool] = []

    def react(seen: str, pid: int) -> bytes:
        if not done and when(seen):
            done.append(True)
            os.kill(pid, signal.SIGINT)
        return b""

    return react


def screen(seen: str) -> list[str]:
    """What stands on a screen that got these bytes, without empty lines at its end: for the few codes
    that the command line uses.
    """
    rows, row, column = [""], 0, 0
    for code in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", seen):
        if code == "\r":
            column = 0
        elif code == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif code == "\x1b[K":
            rows[row] = rows[row][:column]
        elif code == "\x1b[J":
            rows[row:] = [rows[row][:column]]
        elif code.startswith("\x1b["):
            row -= int(code[2:-1]) if code.endswith("A") else 0
        else:
            rows[row] = rows[row][:column].ljust(column) + code + rows[row][column + len(code) :]
            column += len(code)
    while rows and not rows[-1]:
        rows.pop()
    return rows


def left_over(seen: str) -> list[str]:
    """The lines that stay on the screen: without what was drawn anew or wiped, and without empty
    ones.
    """
    lines = [line.rpartition(DRAWN_ANEW)[2] for line in seen.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line]

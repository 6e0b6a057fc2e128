"""What the end of a process by a signal usually means."""

from __future__ import annotations

import signal

_MEANINGS = {
    "SIGABRT": "compiled code aborted; its last output says why",
    "SIGALRM": "a timer of the program ran out",
    "SIGBUS": "memory mapped to a file went away, usually because the disk or /dev/shm is full",
    "SIGFPE": "compiled code divided an integer by zero",
    "SIGHUP": "the program's own parent ended",
    "SIGILL": "a package was compiled for another processor",
    "SIGINT": "the program interrupted itself",
    "SIGKILL": "usually the machine ran out of memory; use smaller batches, or set a memory limit "
    "to find out",
    "SIGPIPE": "the program wrote to a pipe that nobody reads",
    "SIGSEGV": (
        "compiled code crashed, often because two packages do not fit together; "
        "PYTHONFAULTHANDLER=1 shows where"
    ),
    "SIGSYS": "the program made a system call that jobs are not allowed to make",
    "SIGTERM": "the program or a command in it ended it; the server did not",
    "SIGTRAP": "compiled code stopped at an assertion",
    "SIGXCPU": "the program's own limit of processor time was reached",
    "SIGXFSZ": "a file grew beyond the program's own limit",
}
_SHELL = {126: "a command in it is not executable", 127: "a command in it was not found"}


def meaning(name: str) -> str:
    """What the signal ``name`` usually means; empty for one that is rare."""
    return _MEANINGS.get(name, "")


def meaning_of_code(code: int) -> str:
    """What an exit code of 126 and above means by the convention of shells; empty for any other."""
    if code in _SHELL:
        return _SHELL[code]
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return ""
    return f"{name}: {_MEANINGS[name]}" if name in _MEANINGS else ""

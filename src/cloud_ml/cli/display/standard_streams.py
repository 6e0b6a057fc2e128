"""Standard output and standard error that may be closed, full, or without a reader."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO, cast

_STANDARD_ERROR = 2


class OutputFailed(Exception):
    """Standard output takes no more. Not an ``OSError``: commands handle those of files by
    themselves.
    """

    def __init__(self, error: OSError) -> None:
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        super().__init__(f"cannot write to standard output: {reason}")
        self.reader_left = error.errno == errno.EPIPE


def prepare_standard_streams() -> None:
    """Have standard output fail with ``OutputFailed``, and standard error never fail.

    Descriptors that the caller has closed are occupied by the null device first. Otherwise the next
    file or connection would get such a number, and a child process would take it for its standard
    output.
    """
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # the lowest free number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = _wrap_stream(sys.stdout, _Output(1, is_closed=1 in closed or sys.stdout is None))
    sys.stderr = _wrap_stream(sys.stderr, _Messages(_STANDARD_ERROR, "w", closefd=False))


def drop_output() -> None:
    """Forget what was not written: the interpreter tries to write it again when it ends."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.dropped = True
    with contextlib.suppress(OSError, OutputFailed):
        sys.stdout.flush()


class _Output(io.FileIO):
    """Standard output."""

    def __init__(self, descriptor: int, *, is_closed: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_closed = is_closed
        self.dropped = False

    def write(self, data: Any, /) -> int:
        """Write bytes.

        Raises:
            OutputFailed: They cannot be written.
        """
        if self.dropped:
            return len(data)
        if self._is_closed:
            raise OutputFailed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from error


class _Messages(io.FileIO):
    """Standard error. Messages that nobody can receive change nothing about the outcome of a
    command.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes as far as possible."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _wrap_stream(old: TextIO | None, raw: io.FileIO) -> TextIO:
    """A text stream like ``old`` over ``raw``."""
    like = cast("io.TextIOWrapper | None", old)
    if like is not None:
        with contextlib.suppress(OSError):
            like.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like is not None else "utf-8",
        errors=like.errors if like is not None else "backslashreplace",
        line_buffering=like.line_buffering if like is not None else True,
        write_through=like.write_through if like is not None else False,
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

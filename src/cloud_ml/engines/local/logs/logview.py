"""What of a log is shown: all of it or the output of the user's code, with or without a time before
each line.

``<name>.code`` beside a log says where the output of the code begins and, if a finish command
follows, where it ends. It is written before the first byte that lies behind either place. So
whoever has read some bytes and then finds no beginning (or no end) in the file knows that these
bytes lie before it.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml.engines.abilities import LogView
from cloud_ml.engines.local.logs.logfile import read_marks

_PLACES = re.compile(rb"(\d{1,18})\n(?:(\d{1,18})\n)?")


def note_code(folder: Path, name: str, position: int) -> None:
    """Note where the output of the code begins; called once more, where it ends. A full disk
    loses the note.
    """
    with (
        contextlib.suppress(OSError),
        (folder / f"{name}.code").open("a", encoding="ascii") as file,
    ):
        file.write(f"{position}\n")


class ShownLog:
    """Takes what a reader reads of a log, in order, and gives what ``view`` shows of it."""

    def __init__(self, folder: Path, name: str, view: LogView) -> None:
        self._code = folder / f"{name}.code"
        self._head = folder / f"{name}.log"
        self._times = folder / f"{name}.times"
        self._view = view
        self._marks: Sequence[tuple[float, int]] = ()
        self._marks_size = -1
        self._at_line_start = True

    def bounds(self) -> tuple[float, float]:
        """Where the shown part begins and ends, as far as that is known by now."""
        if self._view.installation:
            return 0, math.inf
        try:
            found = _PLACES.match(self._code.read_bytes())
        except OSError:
            found = None
        if found is None:
            return math.inf, math.inf
        return int(found[1]), int(found[2]) if found[2] else math.inf

    def select(self, before: int, after: int, data: bytes) -> bytes:
        """What is shown of ``data``, which was read from the position ``before`` to the position
        ``after``.
        """
        first, end = self.bounds()
        if len(data) == after - before:
            start = min(max(before, first), after)
            data = data[int(start) - before : max(0, int(min(end, after)) - before)]
        else:  # a sentence about a gap
            start = before
            data = data if first < after and before < end else b""
        return self._with_times(int(start), data) if self._view.timestamps and data else data

    def _with_times(self, position: int, data: bytes) -> bytes:
        self._read_marks()
        shown = []
        for line in _lines(data):
            if self._at_line_start:
                shown.append(self._time_of(position))
            shown.append(line)
            position += len(line)
            self._at_line_start = line.endswith(b"\n")
        return b"".join(shown)

    def _read_marks(self) -> None:
        with contextlib.suppress(OSError):
            if (size := self._times.stat().st_size) != self._marks_size:
                self._marks, self._marks_size = read_marks(self._times), size

    def _time_of(self, position: int) -> bytes:
        """The time of the last mark before ``position``; of the file where a log was written
        within a second.
        """
        place = bisect.bisect_right(self._marks, position, key=lambda mark: mark[1])
        moment = 0.0
        if place:
            moment = self._marks[place - 1][0]
        else:
            with contextlib.suppress(OSError):
                moment = self._head.stat().st_mtime
        return format_moment(moment)


def format_moment(moment: float) -> bytes:
    """``2026-01-31T12:00:00.000Z`` and a space: always as long, so that positions in a log with
    times stay valid.
    """
    try:
        when = datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError, OSError):  # a mark that a power cut tore
        when = datetime.fromtimestamp(0, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z ").encode()


def _lines(data: bytes) -> list[bytes]:
    """``data`` cut behind its line feeds, and only there."""
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])

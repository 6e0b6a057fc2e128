"""What the terminal can show, and the lines on it that are drawn anew while something goes on."""

from __future__ import annotations

import os
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

FALLBACK_WIDTH = 80
FALLBACK_HEIGHT = 24
WIPE = "\r\x1b[K"

_drawn: list[tuple[TextIO, int]] = []
_unfinished: list[TextIO] = []
# The spinner draws from its own thread. The lock is reentrant because ``above_the_line`` calls
# ``wipe`` while it holds the lock.
_pen = threading.RLock()


def wants_colours(stream: TextIO | None = None) -> bool:
    """Whether standard output, or another stream, is a terminal whose user has not refused
    colours (``NO_COLOR``).
    """
    return (
        _is_terminal(stream or sys.stdout)
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def is_live(stream: TextIO) -> bool:
    """Whether lines may be drawn anew there: a terminal that can, and ``CLOUDML_PROGRESS`` is
    not ``0``.
    """
    return (
        _is_terminal(stream)
        and os.environ.get("TERM") != "dumb"
        and os.environ.get("CLOUDML_PROGRESS") != "0"
    )


def width_of(stream: TextIO) -> int:
    """The columns of a terminal; 80 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or FALLBACK_WIDTH
    except (OSError, ValueError, AttributeError):
        return FALLBACK_WIDTH


def height_of(stream: TextIO) -> int:
    """The lines of a terminal; 24 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).lines or FALLBACK_HEIGHT
    except (OSError, ValueError, AttributeError):
        return FALLBACK_HEIGHT


def draw(stream: TextIO, text: str) -> None:
    """Show ``text`` in place of what was drawn before. Its lines must fit the width, and all of them
    the height. Behind half a line nothing is shown.
    """
    with _pen:
        if _unfinished:
            return
        stream.write(_to_wipe() + text)
        stream.flush()
        _drawn[:] = [(stream, text.count("\n") + 1)]


def wipe() -> None:
    """Remove what was drawn, if there is something."""
    with _pen:
        if _drawn:
            stream, codes = _drawn[0][0], _to_wipe()
            _drawn.clear()
            stream.write(codes)
            stream.flush()


def _to_wipe() -> str:
    """What removes the lines that were drawn: the cursor stands at the end of the last one."""
    lines = _drawn[0][1] if _drawn else 1
    return WIPE if lines == 1 else f"\r\x1b[{lines - 1}A\x1b[J"


@contextmanager
def above_the_line(
    stream: TextIO, *, ends_line: bool = True, goes_on: bool = False
) -> Iterator[None]:
    """Within this, what is written to ``stream`` stands above the drawn line: nobody draws
    meanwhile.

    ``ends_line`` says whether the text ends its line, ``goes_on`` whether it goes on with the line
    before it.
    """
    with _pen:
        wipe()
        if _unfinished and not goes_on:
            stream.write("\n")
            stream.flush()
        yield
        shows = not ends_line and (_is_terminal(stream) or _share_a_file(sys.stdout, sys.stderr))
        _unfinished[:] = [stream] if shows else []


def _share_a_file(one: TextIO, other: TextIO) -> bool:
    """Whether two streams lead to one pipe or file, as with ``2>&1``."""
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError, AttributeError):
        return False


def plain(text: str) -> str:
    r"""``text`` as one line without control characters, which could rewrite the terminal or turn a name around.

    Spaces of any kind become spaces; other signs that are not printed are escaped, such as ``\x1b`` and ``\u202e``.
    """
    return (
        text
        if text.isprintable()
        else "".join(" " if char.isspace() else _visible(char) for char in text)
    )


def printable(text: str) -> str:
    """Like ``plain``, for text of several lines: line ends, tabs and wide spaces stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) == "Zs" else _visible(char)
        for char in text
    )


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def columns(text: str) -> int:
    """How many columns ``text`` takes: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns; what had to be cut ends in ``…``."""
    if columns(text) <= width:
        return text
    taken, kept = 0, []
    for char in text:
        taken += _columns_of(char)
        if taken > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """``text`` filled with spaces to ``width`` columns."""
    return text + " " * (width - columns(text))


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()

"""Bars and spinners on standard error, for the person in front of it.

Nothing is shown where standard error is no terminal, where the terminal is dumb, or where
``CLOUDML_PROGRESS=0`` asks for silence; the callables may be called all the same. A line is drawn
at most ten times a second and is gone at the end: what is to stay is said by the caller.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.terminal import (
    columns,
    cut,
    draw,
    height_of,
    is_live,
    plain,
    width_of,
    wipe,
)

REDRAW_S = 0.1
"""The shortest time between two drawings."""
RATE_WINDOW_S = 5.0
"""Rates and times left are judged by the last so many seconds."""
_LEAST_BAR = 10
_MOST_BAR = 40
_LEFT_LINES = 3
"""So many lines of a terminal are left to what is written above."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


@contextmanager
def bar(label: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None]]:
    """Show how far something is, in bytes.

    ::

        with bar("Uploading linear.tar.gz", total) as progress:
            progress(4096, None)      # bytes done so far; the total, where it is only known now

    Without a total there are no bar and no time left, but size and rate.
    """
    if not is_live(sys.stderr):
        yield lambda _done, _total: None
        return
    drawing = _Bar(sys.stderr, plain(label), total)
    try:
        yield drawing.update
    finally:
        drawing.stop()


@contextmanager
def spinner(label: str) -> Iterator[Callable[[str], None]]:
    """Show that something goes on. Calling what is given with a text replaces the label; its further
    lines are shown below that, as far as there is room.
    """
    if not is_live(sys.stderr):
        yield lambda _label: None
        return
    spinning = _Spinner(sys.stderr, label)
    spinning.start()
    try:
        yield spinning.say
    finally:
        spinning.stop()


class _Bar:
    """Draws when it is told something, if the last drawing is long enough ago."""

    def __init__(self, stream: TextIO, label: str, total: int | None) -> None:
        self._stream = stream
        self._label = label
        self._total = total
        self._samples: deque[tuple[float, int]] = deque()
        self._drawn_at = float("-inf")
        self._is_over = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Remove the line. Threads that still tell something after an interrupt draw none."""
        self._is_over = True
        with self._lock:  # whoever draws at the moment is done
            wipe()

    def update(self, done: int, total: int | None = None) -> None:
        now = time.monotonic()
        self._total = total if total is not None else self._total
        if now - self._drawn_at < REDRAW_S and done != self._total:
            return
        self._drawn_at = now
        self._samples.append((now, done))
        while now - self._samples[0][0] > RATE_WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        room, fancy = _room(self._stream), _fancy(self._stream)
        line = bar_line(self._label, done, self._total, self._rate(), width=room, fancy=fancy)
        with self._lock:
            if not self._is_over:
                draw(self._stream, line)

    def _rate(self) -> float | None:
        (then, before), (now, done) = self._samples[0], self._samples[-1]
        return (done - before) / (now - then) if now > then else None


def bar_line(
    label: str, done: int, total: int | None, rate: float | None, *, width: int, fancy: bool = True
) -> str:
    """One drawing of a bar in ``width`` columns; the less room, the less it tells. ``rate`` in
    bytes a second.
    """
    amount = figures.size(done)
    tails = [f"{amount}  {figures.size(rate)}/s" if rate else amount, amount, ""]
    if total:
        share = min(done / total, 1.0)
        amount = f"{share:4.0%}  {amount} of {figures.size(total)}"
        speed = f"{amount}  {figures.size(rate)}/s" if rate else amount
        left = (
            f"{speed}  {figures.clock((total - done) / rate)} left"
            if rate and done < total
            else speed
        )
        tails = [left, speed, amount, f"{share:4.0%}", ""]
    least = min(columns(label), 16) + 2
    tail = next(one for one in tails if not one or least + len(one) <= width)
    room = width - columns(label) - len(tail) - 4
    if total and room >= _LEAST_BAR:
        return f"{label}  {_draw_bar(done / total, min(room, _MOST_BAR), fancy)}  {tail}"
    return f"{cut(label, width - len(tail) - 2)}  {tail}" if tail else cut(label, width)


def gauge(share: float) -> str:
    """A short bar to stand within the text of a spinner."""
    return _draw_bar(share, _LEAST_BAR, _fancy(sys.stderr))


def _draw_bar(share: float, width: int, fancy: bool) -> str:
    full = int(min(share, 1.0) * width)
    return ("━" if fancy else "#") * full + ("╌" if fancy else "-") * (width - full)


class _Spinner(threading.Thread):
    """Draws by itself, ten times a second, until it is stopped."""

    def __init__(self, stream: TextIO, label: str) -> None:
        super().__init__(name="spinner", daemon=True)
        self._stream = stream
        self._label, self._below = _lines(label)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def say(self, label: str) -> None:
        self._label, self._below = _lines(label)

    def stop(self) -> None:
        self._over.set()
        with self._lock:  # also where an interrupt comes in between, nothing is drawn any more
            wipe()
        self.join()

    def run(self) -> None:
        frames = _FRAMES if _fancy(self._stream) else _PLAIN_FRAMES
        turn = 0
        while not self._over.is_set():
            passed = figures.clock(time.monotonic() - self._began)
            label = cut(self._label, _room(self._stream) - len(passed) - 4)
            line = f"{frames[turn % len(frames)]} {label}  {passed}"
            text = "\n".join([line, *self._shown_below()])
            with self._lock:
                if not self._over.is_set():
                    draw(self._stream, text)
            turn += 1
            self._over.wait(REDRAW_S)

    def _shown_below(self) -> list[str]:
        room, most = _room(self._stream), max(0, height_of(self._stream) - _LEFT_LINES)
        return [cut(line, room) for line in self._below[:most]]


def _lines(text: str) -> tuple[str, list[str]]:
    first, *below = text.split("\n")
    return plain(first), [plain(line) for line in below]


def _room(stream: TextIO) -> int:
    # A line that fills the last column would wrap on some terminals.
    return max(width_of(stream) - 1, 10)


def _fancy(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"

"""The collector: reads pieces of files of jobs, and answers with the points in them.

It is asked one thing at a time, on the socket that is its standard input. A request carries the
file as a descriptor. It knows nothing between requests but how records look.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cloud_ml.collector import fences, frames
from cloud_ml.collector.frames import NO_STEP, Row
from cloud_ml.tracking.event_files import EventFileReader, Session
from cloud_ml.tracking.log_patterns import LinePattern, PatternRefused, compile_pattern, read_lines
from cloud_ml.tracking.search_patterns import compile_search

PIECE_BYTES = 512 * 1024
"""Read at once: several times the largest record, and the longest line."""

Answer = tuple[Mapping[str, Any], list[Row]]


class Collector:
    """Answers requests."""

    def __init__(self) -> None:
        self._events = EventFileReader()
        self._patterns: dict[str, LinePattern] = {}

    def answer(self, request: Mapping[str, Any], descriptor: int | None) -> Answer:
        """The answer to one request."""
        kind = request["kind"]
        if kind == "check":
            compiled = compile_search if request.get("search") else compile_pattern
            return self._check(request["patterns"], compiled), []
        if descriptor is None:
            raise ValueError("there is no file")
        if kind == "events":
            return self._read_events(request, descriptor)
        return self._read_log(request, descriptor)

    def _check(self, patterns: list[str], compiled: Callable[[str], object]) -> Mapping[str, Any]:
        for pattern in patterns:
            try:
                compiled(pattern)
            except PatternRefused as refused:
                return {"pattern": pattern, "refused": str(refused)}
        return {"refused": ""}

    def _read_events(self, request: Mapping[str, Any], descriptor: int) -> Answer:
        offset = request["offset"]
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, PIECE_BYTES, offset)
        number, purge = request["session"]

        def read_at(at: int, size: int) -> bytes:
            return os.pread(descriptor, size, at)

        session = Session(0, number, purge)
        read = self._events.read(data, offset=offset, size=size, session=session, read_at=read_at)
        names = _Names()
        rows = [(names.number(tag), step, at, value) for tag, step, at, value in read.scalars]
        document = {
            "names": names.list,
            "taken": read.taken,
            "sessions": read.sessions,
            "broken": read.broken,
            "size": size,
            "tags": read.tags,
        }
        return document, rows

    def _read_log(self, request: Mapping[str, Any], descriptor: int) -> Answer:
        offset, left, at = request["offset"], request["left"], request["at"]
        data = os.pread(descriptor, min(PIECE_BYTES, left), offset)
        patterns = [self._pattern(text) for text in request["patterns"]]
        read = read_lines(
            data,
            patterns,
            request["steps"],
            more=left > len(data),
            final=request["final"] and left <= len(data),
        )
        names = _Names()
        rows = [
            (names.number(name), NO_STEP if step is None else step, at, value)
            for name, step, value in read.points
        ]
        return {"names": names.list, "taken": read.taken, "steps": dict(read.steps)}, rows

    def _pattern(self, text: str) -> LinePattern:
        if text not in self._patterns:
            if len(self._patterns) >= 64:
                self._patterns.clear()
            self._patterns[text] = compile_pattern(text)
        return self._patterns[text]


class _Names:
    """Numbers of names, from 0 on."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.list)
            self.list.append(name)
        return found


def serve(line: socket.socket) -> None:
    """Answer until the server has gone."""
    collector = Collector()
    while True:
        # 8 bytes are the lengths that begin a frame; the descriptor comes with them.
        first, descriptors, _, _ = socket.recv_fds(line, 8, 1)
        if not first:
            return
        try:
            request, _ = frames.receive(line, first, frames.LARGEST_REQUEST)
            fences.begin_request()
            answer = collector.answer(request, descriptors[0] if descriptors else None)
            fences.end_request()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        line.sendall(frames.pack(*answer))


def main() -> None:
    """Become the collector."""
    line = socket.socket(fileno=0)
    user = int(sys.argv[1])
    fences.give_up_rights(user or None)
    line.sendall(frames.pack({"ready": True}))
    with contextlib.suppress(EOFError, OSError):
        serve(line)
    # Exit handlers may call what the filter forbids.
    os._exit(0)


if __name__ == "__main__":
    main()

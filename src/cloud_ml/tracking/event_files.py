"""TensorBoard's event files: the scalars in them, and which tags have other summaries, read without
TensorFlow.

A file is a sequence of records: the length (8 bytes), its checksum (4), the data, its checksum (4).
Each record is an ``Event`` of ``tensorflow/core/util/event.proto``; see ``events``.

Whoever trains controls these bytes. Each call takes a bounded piece, and gives a bounded number of
points of a bounded number of series. Records that are too large for scalars, such as graphs and
images, are passed over but for the heads of their fields; time is linear in the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cloud_ml.tracking.crc32c import MASK_DELTA, crc32c, masked_crc32c
from cloud_ml.tracking.events import Event, EventDecoder, Scalar
from cloud_ml.tracking.large_records import ReadAt, read_large_event

LARGEST_RECORD = 64 * 1024
"""Records that may hold scalars are not larger: one is some sixty bytes, and a step has a few."""
MOST_POINTS = 20_000
"""One call gives so many, and those of one record."""
MOST_SERIES = 500
"""Likewise."""
MOST_SESSIONS = 15
"""Sessions of one file that are told apart."""
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MARK = "tfevents"


class Session(NamedTuple):
    """A part of a file that one program has written: from the point ``begin`` of a call on.

    A session takes away the points of those before it from the step ``purge`` on.
    """

    begin: int = 0
    number: int = 0
    purge: int | None = None


class ReadTag(NamedTuple):
    """How many summaries of a tag and kind were read, and step and time of the newest."""

    tag: str
    kind: str
    summaries: int
    last_step: int
    last_at: int


@dataclass(frozen=True)
class ReadScalars:
    """The scalars of whole records, and how many bytes these take. ``tags`` are of other summaries.

    ``sessions`` says to which session the scalars belong; the last one goes on. ``taken`` may be
    beyond the bytes that were given: what was passed over need not be read. ``broken`` says why
    nothing behind it can be read; it is empty while all is well.
    """

    scalars: list[Scalar]
    taken: int
    sessions: list[Session]
    broken: str = ""
    tags: Sequence[ReadTag] = ()


def is_event_file(name: str) -> bool:
    """Whether a file is one of events, by its name as TensorBoard decides it."""
    return _MARK in name.rpartition("/")[2]


class EventFileReader:
    """Reads pieces of event files. What it learns of how records look makes later ones cheap."""

    def __init__(self) -> None:
        self._decoder = EventDecoder()
        self._lengths: dict[bytes, int] = {}

    def read(
        self,
        data: bytes,
        *,
        offset: int,
        size: int,
        session: Session = Session(),  # noqa: B008
        read_at: ReadAt | None = None,
    ) -> ReadScalars:
        """Read whole records, up to the bounds of one call.

        Args:
            data: A piece of the file. It holds more than ``LARGEST_RECORD``, or the file's end.
            offset: Where it begins.
            size: Of the file.
            session: The one that goes on at ``offset``.
            read_at: Reads the file, for tags in records that are larger than a piece; without it,
                these are not looked for.
        """
        reading = _Reading(session)
        # Names of the loop below: it runs once for some sixty bytes, and calls as little as it can.
        at, broken, end = 0, "", len(data)
        known, decode, crc_at = self._lengths, self._decoder.decode_usual, _CRC.unpack_from
        found, seen, most = reading.scalars, reading.seen, MOST_POINTS
        # 12 bytes: the length and its checksum.
        while at + 12 <= end and len(found) < most:
            begin = at + 12
            length = known.get(data[at:begin])
            if length is None:
                length = self._length(data[at:begin])
                if length is None:
                    broken = f"the head of the record at byte {offset + at} is damaged"
                    break
            stop = begin + length
            # Passed over without a look at its checksum: it may lie far beyond the piece.
            if length > LARGEST_RECORD and offset + stop + 4 <= size:
                if read_at is not None and not reading.take_large(
                    read_large_event(read_at, offset + begin, length)
                ):
                    break
                at = stop + 4
                continue
            if stop + 4 > end:
                break
            record = data[begin:stop]
            crc = crc32c(record)
            # TensorFlow stores checksums rotated and shifted: one over bytes that hold checksums
            # themselves would be weak.
            if crc_at(data, stop)[0] != (crc >> 15 | crc << 17) + MASK_DELTA & 0xFFFFFFFF:
                broken = f"the record at byte {offset + at} is damaged"
                break
            usual = decode(record)
            if usual is not None and usual[0] in seen:
                found.append(usual)
            elif not reading.take(self._decoder.decode(record)):
                break
            at = stop + 4
        return ReadScalars(found, at, reading.sessions, broken, reading.tags())

    def _length(self, head: bytes) -> int | None:
        """The length that a head says; ``None`` if it is damaged."""
        length, crc = _HEAD.unpack(head)
        if masked_crc32c(head[:8]) != crc:
            return None
        if len(self._lengths) < MOST_SERIES:
            self._lengths[head] = length
        return int(length)


class _Reading:
    """What one call finds."""

    def __init__(self, session: Session) -> None:
        self.scalars: list[Scalar] = []
        self.sessions = [Session(0, session.number, session.purge)]
        self.seen: set[str] = set()
        self._others: dict[tuple[str, str], ReadTag] = {}

    def take(self, event: Event) -> bool:
        """Add an event; false if this call has no room for it."""
        new = {tag for tag, _ in event.values} - self.seen
        if not self._has_room(len(new), event):
            return False
        if event.starts_session:
            self._start_session(event.step)
        self.seen |= new
        self.scalars += [(tag, event.step, event.at, value) for tag, value in event.values]
        if event.others:
            self._add_others(event)
        return True

    def take_large(self, event: Event) -> bool:
        """The same of an event in a large record."""
        if not self._has_room(0, event):
            return False
        self._add_others(event)
        return True

    def tags(self) -> list[ReadTag]:
        """What was found beside scalars."""
        return list(self._others.values())

    def _has_room(self, new: int, event: Event) -> bool:
        there = len(self.seen) + len(self._others)
        if event.others:
            new += len(set(event.others) - self._others.keys())
        return not there or there + new <= MOST_SERIES

    def _add_others(self, event: Event) -> None:
        for tag, kind in event.others:
            before = self._others.get((tag, kind))
            count = 1 if before is None else before.summaries + 1
            step, at = event.step, event.at
            if before is not None and before.last_at > at:
                step, at = before.last_step, before.last_at
            self._others[tag, kind] = ReadTag(tag, kind, count, step, at)

    def _start_session(self, step: int) -> None:
        """A program that goes on at ``step`` says so. Beyond ``MOST_SESSIONS`` it is not heard."""
        last = self.sessions[-1]
        if last.number < MOST_SESSIONS:
            self.sessions.append(Session(len(self.scalars), last.number + 1, step))


def scalars_of_file(data: bytes) -> Iterator[Scalar]:
    """The scalars of a file that is in memory, up to damage."""
    reader, at, session = EventFileReader(), 0, Session()
    while True:
        read = reader.read(data[at:], offset=at, size=len(data), session=session)
        yield from read.scalars
        at, session = at + read.taken, read.sessions[-1]
        if not read.taken or read.broken:
            return

"""Event files are read as TensorBoard reads them, however they arrive, and whatever is in them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import pytest

from cloud_ml.tracking.crc32c import masked_crc32c
from cloud_ml.tracking.event_files import (
    LARGEST_RECORD,
    MOST_SERIES,
    EventFileReader,
    Session,
    is_event_file,
)
from cloud_ml.tracking.events import Scalar


def _varint(value: int) -> bytes:
    found = b""
    value &= 0xFFFFFFFFFFFFFFFF
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _event(value: bytes, *, tag: str = "loss", step: int = 3) -> bytes:
    inner = _bytes(1, tag.encode()) + value
    moment = _varint(1 << 3 | 1) + struct.pack("<d", 12.5) + _varint(2 << 3) + _varint(step)
    return moment + _bytes(5, _bytes(1, inner))


def _simple(value: float) -> bytes:
    return _varint(2 << 3 | 5) + struct.pack("<f", value)


def _tensor(dtype: int, *content: bytes, shape: bytes = b"") -> bytes:
    return _bytes(8, _varint(1 << 3) + _varint(dtype) + _bytes(2, shape) + b"".join(content))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + data
        + struct.pack("<I", masked_crc32c(data))
    )


_VERSION = _record(_bytes(3, b"brain.Event:2"))


@dataclass
class _Read:
    """What was found in a file, and where reading has come to."""

    found: list[Scalar]
    offset: int
    broken: str
    sessions: list[tuple[int, int, int | None]]
    """Of each point."""


def _read(data: bytes, size: int = 1 << 20, *, reader: EventFileReader | None = None) -> _Read:
    """Read a file that grows by ``size`` bytes."""
    reader = reader or EventFileReader()
    read, session = _Read([], 0, "", []), Session()
    for end in [*range(size, len(data), size), len(data)]:
        more = True
        while more and not read.broken:
            part = reader.read(
                data[read.offset : end], offset=read.offset, size=end, session=session
            )
            for at in range(len(part.scalars)):
                read.sessions.append([each for each in part.sessions if each.begin <= at][-1])
            read.found += part.scalars
            read.offset += part.taken
            read.broken, session = part.broken, part.sessions[-1]
            more = part.taken > 0
    return read


def test_the_checksum_is_that_of_the_standard() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeros have the CRC 0x8A9136AA.
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (_simple(0.5), 0.5),
        (_tensor(1, _bytes(5, struct.pack("<f", 0.25))), 0.25),
        (_tensor(1, _bytes(4, struct.pack("<f", 0.25))), 0.25),
        (_tensor(1, _varint(5 << 3 | 5) + struct.pack("<f", 0.25)), 0.25),
        (_tensor(2, _bytes(6, struct.pack("<d", 0.1))), 0.1),
        (_tensor(3, _bytes(7, _varint(-2))), -2.0),
        (_tensor(9, _varint(10 << 3) + _varint(7)), 7.0),
    ],
    ids=["simple", "floats", "content", "float", "double", "int", "int64"],
)
def test_scalars_of_every_writer_are_read(value: bytes, read: float, size: int) -> None:
    whole = _read(_VERSION + 2 * _record(_event(value)), size)
    assert whole.found == 2 * [("loss", 3, 12_500, read)]
    assert not whole.broken


def test_steps_may_be_negative_and_values_no_numbers() -> None:
    found = _read(_record(_event(_simple(math.inf), step=-4))).found
    assert found == [("loss", -4, 12_500, math.inf)]
    assert math.isnan(_read(_record(_event(_simple(math.nan)))).found[0][3])


@pytest.mark.parametrize(
    "value",
    [
        _tensor(1, _bytes(5, struct.pack("<2f", 1, 2))),
        _tensor(1, _bytes(5, struct.pack("<f", 1)), shape=b"\x12\x02\x08\x01"),
        _tensor(7, _bytes(8, b"text")),
        _bytes(4, b"image"),
    ],
    ids=["two elements", "a vector", "text", "an image"],
)
def test_what_is_no_scalar_is_left_out(value: bytes) -> None:
    assert _read(_record(_event(value))).found == []


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_large_records_are_passed_over(size: int) -> None:
    large = _record(bytes(LARGEST_RECORD + 1))
    whole = 2 * large + _record(_event(_simple(1)))
    read = _read(whole, size)
    assert [one[3] for one in read.found] == [1]
    assert read.offset == len(whole)


def test_a_record_that_says_it_is_endless_waits_for_its_end() -> None:
    for length in (2**63, 2**64 - 1, LARGEST_RECORD + 1):
        head = struct.pack("<Q", length)
        whole = _VERSION + head + struct.pack("<I", masked_crc32c(head)) + bytes(1000)
        read = _read(whole)
        assert (read.found, read.offset, read.broken) == ([], len(_VERSION), "")


def test_a_file_that_is_being_written_is_read_to_its_last_whole_record() -> None:
    whole = _VERSION + _record(_event(_simple(1)))
    read = _read(whole + _record(_event(_simple(2)))[:-1])
    assert [one[3] for one in read.found] == [1]
    assert (read.offset, read.broken) == (len(whole), "")


@pytest.mark.parametrize("at", [0, 9, 20, -1])
def test_a_damaged_file_is_read_up_to_the_damage(at: int) -> None:
    whole, record = _VERSION, bytearray(_record(_event(_simple(2))))
    record[at] ^= 1
    read = _read(whole + bytes(record) + _record(_event(_simple(3))))
    assert read.found == []
    assert f"byte {len(whole)} " in read.broken


def test_an_event_that_is_no_message_has_no_scalars() -> None:
    assert _read(_record(b"\xff" * 30) + _record(_event(_simple(1)))).found[0][3] == 1


def test_a_program_that_goes_on_begins_a_session() -> None:
    first = [_record(_event(_simple(1), step=step)) for step in range(3)]
    start = _record(_varint(2 << 3) + _varint(1) + _bytes(7, b"\x08\x01"))
    read = _read(_VERSION + b"".join(first) + start + _record(_event(_simple(2), step=1)))
    assert [one[1] for one in read.found] == [0, 1, 2, 1]
    assert [session[1:] for session in read.sessions] == [(0, None)] * 3 + [(1, 1)]


def test_events_that_look_alike_are_told_apart() -> None:
    events = [
        (tag, step, value)
        for step in (0, 5, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**28, 2**40)
        for value in (0.0, 0.5, -1.0)
        for tag in ("loss", "lass", "train/accuracy")
    ]
    records = [_record(_event(_simple(value), tag=tag, step=step)) for tag, step, value in events]
    expected = [(tag, step, 12_500, value) for tag, step, value in events]
    assert _read(b"".join(records)).found == expected
    assert _read(b"".join(records), 13).found == expected


def test_a_call_gives_points_of_a_bounded_number_of_series() -> None:
    tags = [f"tag{number}" for number in range(3 * MOST_SERIES)]
    data = b"".join(_record(_event(_simple(1), tag=tag)) for tag in tags)
    part = EventFileReader().read(data, offset=0, size=len(data))
    assert len(part.scalars) == MOST_SERIES
    assert [one[0] for one in _read(data).found] == tags


def test_tags_that_are_no_names_are_left_out() -> None:
    for tag in ("", "a\nb", "x" * 251, "x" * 60_000):
        assert _read(_record(_event(_simple(1), tag=tag))).found == []


def test_files_are_known_by_their_name() -> None:
    assert is_event_file("logs/events.out.tfevents.1700000000.host")
    assert not is_event_file("tfevents/model.bin")

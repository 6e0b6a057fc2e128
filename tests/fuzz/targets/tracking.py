"""What training programs write about themselves."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter

from cloud_ml.cli.studies.local_trials import values_of_line
from cloud_ml.collector.client import event_piece, log_piece
from cloud_ml.collector.frames import LARGEST_ANSWER, BadFrame, pack, receive
from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME
from cloud_ml.domain.metrics.reports import is_metric_name
from cloud_ml.tracking.crc32c import masked_crc32c
from cloud_ml.tracking.event_files import LARGEST_RECORD, MOST_SERIES, EventFileReader, Session
from cloud_ml.tracking.events import MOST_VALUES, NOTHING, EventDecoder
from cloud_ml.tracking.large_records import read_large_event
from cloud_ml.tracking.log_patterns import READY, PatternRefused, compile_pattern, read_lines
from cloud_ml.tracking.search_patterns import compile_search
from cloud_ml.tracking.summary_kinds import KINDS, UNKNOWN
from fuzz.harness import cuts, target

_EVENT = (
    b"\x09" + struct.pack("<d", 1.5) + b"\x10\x07*\x0d\n\x0b\n\x04loss\x15" + struct.pack("<f", 0.5)
)
_TENSOR = b"\x10\x07*\x14\n\x12\n\x04loss\x42\x0a\x08\x01\x12\x00\x22\x04" + struct.pack("<f", 0.25)
_HISTOGRAM = b"\x09" + struct.pack("<d", 1.5) + b"\x10\x07*\x0d\n\x0b\n\x01w\x2a\x06\x09" + bytes(5)
_IMAGES = b"\x10\x07*\x17\n\x15\n\x01w\x42\x04\x08\x07\x42\x00\x4a\x0a\n\x08\n\x06images"
_START = b"\x09" + struct.pack("<d", 1.5) + b"\x10\x03\x3a\x02\x08\x01"


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    checked = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(checked) + data + next(checked)


_LARGE = _record(
    b"\x10\x07*\xcb\x80\x04\n\xc7\x80\x04\n\x01w\x22\xc0\x80\x04" + b"a" * 65_600
) + _record(_EVENT)


def _read(ends: list[int], data: bytes) -> tuple[list[str], int, str, Counter[tuple[str, str]]]:
    """Read a file that grows to these lengths."""
    reader, at, session, broken = EventFileReader(), 0, Session(), ""
    found: list[str] = []
    tags: Counter[tuple[str, str]] = Counter()

    def read_at(begin: int, most: int) -> bytes:
        return data[begin : begin + most]

    for size in ends:
        more = True
        while more and not broken:
            read = reader.read(
                data[at:size], offset=at, size=size, session=session, read_at=read_at
            )
            starts = [each.begin for each in read.sessions[1:]] + [len(read.scalars)]
            begin = 0
            for one, end in zip(read.sessions, starts, strict=True):
                found += [repr((point, one[1:])) for point in read.scalars[begin:end]]
                begin = end
            for tag, kind, summaries, step, moment in read.tags:
                assert is_metric_name(tag)
                assert kind in {*KINDS, UNKNOWN}
                assert abs(step) <= LARGEST_STEP
                assert 0 <= moment <= LARGEST_TIME
                tags[tag, kind] += summaries
            at, session, broken = at + read.taken, read.sessions[-1], read.broken
            more = read.taken > 0
    return found, at, broken, tags


@target(
    "tracking.event_files",
    "tracking.events",
    "tracking.large_records",
    "tracking.protobuf",
    "tracking.crc32c",
    seeds=[_EVENT, _TENSOR, _HISTOGRAM, _IMAGES, _record(_HISTOGRAM) + _record(_IMAGES), _LARGE,
           _record(_EVENT), _record(_TENSOR) * 2, _record(_EVENT) + _record(_START) + _record(_EVENT),
           _record(b"a" * (LARGEST_RECORD + 1)) + _record(_EVENT)],
    words=[_EVENT, _TENSOR, _START, _HISTOGRAM, _IMAGES, b"images", b"\n", b"*", b"\x08\x01", b"\xff" * 9, b"\x15", b"\x22\x04", b"loss"],
)  # fmt: skip
def event_file(data: bytes) -> None:
    """Bytes as a file, and as the event of a record that is whole: the same scalars however they
    arrive, no error, and never more read than there is.
    """
    for whole in (data, _record(data) + _record(_EVENT)):
        found, offset, broken, tags = _read([len(whole)], whole)
        assert offset <= len(whole)
        assert len(found) <= len(whole)
        for cut in cuts(whole[:1500]) if len(whole) <= 1500 else []:
            ends = [sum(map(len, cut[: at + 1])) for at in range(len(cut))]
            assert _read(ends, whole) == (found, offset, broken, tags)
    if len(data) <= LARGEST_RECORD:
        assert "loss" in _read([10**9], _record(data) + _record(_EVENT))[0][-1]
    if len(data) <= 600:  # each place of it is tried with the whole
        _same_when_known(data)
    _same_when_large(data)


def _same_when_known(data: bytes) -> None:
    """What is looked up by how an event looks is what its fields say."""
    decoder = EventDecoder()
    for at in range(0, max(1, len(data) - 4), 3):
        for changed in (data, data[:at] + b"\x01\x02\x03\x04" + data[at + 4 :]):
            usual = decoder.decode_usual(changed)
            event = EventDecoder().decode(changed)
            assert len(event.values) <= MOST_VALUES
            assert repr(decoder.decode(changed)) == repr(event)
            if usual is not None:
                tag, step, moment, value = usual
                assert not event.starts_session
                assert (step, moment) == (event.step, event.at)
                assert repr(event.values[0]) == repr((tag, value))


def _same_when_large(data: bytes) -> None:
    """A record of which heads are read only has the tags that it has when it is read whole."""
    reads = []

    def read_at(begin: int, most: int) -> bytes:
        reads.append(most)
        return data[begin : begin + most]

    skipped = read_large_event(read_at, 0, len(data))
    assert sum(reads) <= LARGEST_RECORD
    whole = EventDecoder().decode(data)
    if len(data) > 1000 or whole == NOTHING:
        return
    # Contents are skipped: what is wrong in there is not seen, and a small tensor may be a scalar.
    if all(kind != UNKNOWN for _, kind in [*whole.others, *skipped.others]) and not whole.values:
        assert (skipped.step, skipped.at) == (whole.step, whole.at)
        assert set(whole.others) <= set(skipped.others)


_LINES = b"""Epoch 1/2
10/10 - 2s 3ms/step - loss: 0.5 - val_loss: nan
\r1/9 - 1s 1ms/step - loss: 1\r9/9 - 1s 1ms/step - loss: 1e-3
Epoch 3: 100%| 9/9 [00:05<00:00, 90.1it/s, v_num=0, train_loss=0.1]
[1]\ttrain-rmse:0.1\tvalid-rmse:0.2
[100]\ttraining's l2: 0.1
Epoch: 3, loss: 0.25
{"step": 3, "loss": NaN, "deep": [[[]]]}
"""


@target(
    "tracking.search_patterns",
    seeds=[b"CUDA error\x00a CUDA error", b"^(a|b)+$\x00ab\nba", b"(?i)x{2,3}\\b\x00XX"],
    words=[b"\x00", b"(?", b"(?:", b"|", b"{1,3}", b"\\Q", b"\\b", b"$", b"^", b"[^", b"\n"],
)  # fmt: skip
def search_pattern(data: bytes) -> None:
    """A pattern is refused, or looked for in any bytes, with the same answer each time."""
    text, _, log = data.rpartition(b"\x00")
    try:
        pattern = compile_search(text.decode("utf-8", "surrogateescape"))
    except PatternRefused:
        return
    assert bool(pattern.search(log)) == bool(pattern.search(log))


@target(
    "tracking.log_patterns",
    seeds=[_LINES, b"\x00" + _LINES, b"loss=(?P<loss>\\S+)\x00loss=0.5\n",
           b"(?P<step>\\S+) (?P<loss>\\S+)\x00-5 0.5\n+6 1\n", b"(?P<value>.*)\x00a\n", b"((a*)*)*\x00", b"loss: 1,234.5 step 1,000 loss=1,loss=2"],
    words=[b"\x00", b"(?P<value>", b"(?P<name>", b"(?P<step>", b")", b"Epoch ", b": ", b"[1] ", b"{", b"\x1b[0m", b"\r", b"\n"],
)  # fmt: skip
def log_pattern(data: bytes) -> None:
    """A pattern and the lines of a log: points within bounds, however the lines arrive."""
    text, _, log = data.rpartition(b"\x00")
    patterns = [compile_pattern(name) for name in (*READY, "metric:loss")]
    if text:
        with contextlib.suppress(PatternRefused):
            patterns.append(compile_pattern(text.decode("utf-8", "replace")))
    whole = read_lines(log, patterns, {}, final=True)
    for name, step, value in whole.points:
        assert 0 < len(name) <= 250
        assert name.isprintable()
        assert step is None or abs(step) <= 10**18
        assert isinstance(value, float)
    assert whole.taken == len(log) or len({name for name, _, _ in whole.points}) >= MOST_SERIES // 2
    part = read_lines(log, patterns, {})
    rest = read_lines(log[part.taken :], patterns, part.steps, final=True)
    if part.taken + rest.taken == whole.taken:
        assert repr([*part.points, *rest.points]) == repr(whole.points)
    for line in log.split(b"\n")[:20]:  # what a command finds in the output of a trial is the same
        if not line.isascii():
            continue
        on_server = read_lines(line, [compile_pattern("metric:loss")], {}, final=True).points
        assert repr(values_of_line(line, ["loss"])) == repr(on_server)


@target(
    "collector.frames",
    "collector.client",
    seeds=[pack({"names": ["loss"], "taken": 9, "sessions": [[0, 0, None], [1, 1, 5]], "broken": "", "size": 10, "tags": [["w", "image", 2, 5, 7]]}, [(0, 1, 2, 0.5), (0, 2, 3, 0.25)]),
           pack({"names": [], "taken": 0, "steps": {"keras": 3}})],
    words=[b'"taken":', b'"sessions":[[', b"null", b"true", b"NaN", b"-1", b"\xff\xff", b"\x00" * 8],
)  # fmt: skip
def collector_answer(data: bytes) -> None:
    """What a collector may say that a tenant has taken over: it is refused, or within bounds."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.sendall(data[:65_536])
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(BadFrame, EOFError):
            document, rows = receive(ours, b"", LARGEST_ANSWER)
            for read in (event_piece, log_piece):
                with contextlib.suppress(BadFrame, LookupError, TypeError, ValueError):
                    piece = read(document, rows)
                    assert piece.taken >= 0
                    for tag in getattr(piece, "tags", ()):
                        assert is_metric_name(tag.name)
                        assert tag.kind in {*KINDS, UNKNOWN}
                        assert tag.count > 0
                        assert abs(tag.last_step) <= LARGEST_STEP
                        assert 0 <= tag.last_at <= LARGEST_TIME
                    for value in piece.values:
                        assert is_metric_name(value.name)
                        assert value.step is None or abs(value.step) <= LARGEST_STEP
                        assert 0 <= value.at <= LARGEST_TIME

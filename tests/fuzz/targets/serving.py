"""What a server of models reads from the network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from google.protobuf.message import DecodeError

from cloud_ml.net.budget import Budget
from cloud_ml.net.http1.chunks import Chunks
from cloud_ml.net.http1.heads import CHUNKED, HeadFault, read_head
from cloud_ml.net.http2 import body_reader, frames
from cloud_ml.net.http2 import connection as http2_connection
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.grpc_timeout import parse_timeout, wrong_timeout
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Limits, Received
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import infer_request, json_documents, json_numbers, wire
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import Signature, TensorSpec
from fuzz.harness import cuts, target

MOST = 1 << 16


@target(
    "net.http1.heads",
    seeds=[b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nAccept-Encoding: gzip;q=0.5, *\r\n\r\n",
           b"GET http://h/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n",
           b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=nan\r\nContent-Encoding: x\r\nExpect: y\r\n\r\n", b"\r\n\r\n"],
    words=["Content-Length: ", "Transfer-Encoding: "
                               "chunked", "Host: ", "\r\n", " HTTP/1.1", "http://", ";q=", "\x0b", "\x80", "*", "gzip", "Expect: 100-continue"],
)  # fmt: skip
def model_head(data: bytes) -> None:
    """Refused with a status; or a head that says one length and one host."""
    try:
        head = read_head(data + b"\r\n\r\n")
    except HeadFault as fault:
        assert 400 <= fault.status < 600  # noqa: PT017
        return
    assert head.length == CHUNKED or 0 <= head.length < 10**18
    lines = [line.partition(b":")[0].strip().lower() for line in data.split(b"\r\n")[1:]]
    assert lines.count(b"content-length") + lines.count(b"transfer-encoding") <= 1
    assert not any(name[:1] in (b" ", b"\t") for name in data.split(b"\r\n")[1:])


@target(
    "net.http1.chunks",
    seeds=[
        b"3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\nrest",
        b"fffffffffffffff\r\n",
        b"0\r\n\r\n",
        b"3\r\nabcd\r\n",
        b"1\r\na\r\n" * 20 + b"0\r\n\r\n",
    ],
    words=["0\r\n\r\n", "\r\n", ";", "f", "\n", "\r", " ", "T: v"],
)
def model_chunks(data: bytes) -> None:
    """The body and what follows it do not hang on how the bytes arrive, nor on how many lines a
    turn allows.
    """

    def read(chunks: list[bytes], most_lines: int) -> tuple[bytes, bytes] | str | None:
        body, rest = Chunks(MOST), b""
        try:
            for number, chunk in enumerate(chunks):
                after = body.feed(chunk, most_lines)
                while body.behind and after is None:
                    after = body.feed(b"", most_lines)
                if after is not None:
                    rest = after + b"".join(chunks[number + 1 :])
                    return b"".join(body.parts), rest
        except HeadFault:
            return "refused"
        assert sum(map(len, body.parts)) <= MOST
        return None

    whole = read([data], 1_000_000)
    assert read([data[:2000]], 1) == whole or len(data) > 2000
    for cut in cuts(data[:2000]):
        assert len(data) > 2000 or read(cut, 2) == whole


@target(
    "serving.codecs.json_documents",
    "serving.codecs.json_numbers",
    seeds=[b'{"instances": [[1, 2.5], [3, -4e2]]}', b'{"inputs": [1, 2], "\\u0069nputs": [3]}', b'{"instances": [NaN, Infinity]}',
           b'{"inputs": [[1], [2, 3]]}', b'{"instances": [1e999, 18446744073709551616]}', b'{"instances": ' + b"[" * 50 + b"1" + b"]" * 50 + b"}"],
    words=['"instances"', '"inputs"', "[", "]", ",", "1", "-0", "1e5", "NaN", "null", "\\u0069", "{", "}"],
)  # fmt: skip
def model_numbers(data: bytes) -> None:
    """Refused by the server's own errors; the quick reader of numbers gives what the slow one
    does.
    """
    try:
        slow = json_documents.document(data, b'"inputs"', b'"instances"')
    except ServingError:
        slow = None
    if slow is not None and b"NaN" not in data and b"Infinity" not in data:
        pairs = json.loads(data, object_pairs_hook=lambda pairs: pairs)
        names = [name for name, _ in pairs]
        assert max(names.count("inputs"), names.count("instances")) <= 1
    for dtype, kind in ((dtypes.DOUBLE, np.float64), (dtypes.INT64, np.int64)):
        for rank in (1, 2):
            found = json_numbers.Numbers().read(data, dtype, rank)
            if found is None:
                continue
            assert slow is not None, "only the quick reader takes it"
            name, shape, values = found
            expected = np.asarray(slow[name], dtype=kind)  # raises for lists that are uneven
            assert shape == expected.shape
            assert np.array_equal(expected.ravel(), np.asarray(values).ravel())


@target(
    "serving.codecs.wire",
    seeds=[
        wire.encode_delimited(1, b"abc") + wire.key(2, 0) + wire.varint(2**64 - 1),
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x80" * 11,
        b"\x0b\x0c",
        b"\x09" + b"x" * 8,
    ],
    words=[b"\x0a", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80", b"\x12"],
)
def model_message(data: bytes) -> None:
    """Refused; or fields that lie one behind the other, all within the message."""
    before = 0
    try:
        for _number, _kind, start, end in wire.fields(data, 0, len(data)):
            assert before < start <= end <= len(data)
            before = end
    except wire.Malformed:
        return
    assert before == len(data)


class _Ground:
    """A loop whose turns end at once, and a transport that keeps nothing."""

    closed = False
    protocol: Any = None

    def __init__(self) -> None:
        self.time = lambda: 0.0

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def is_reading(self) -> bool:
        return False

    def feed(self, data: bytes) -> None:
        """Give bytes to who wants them now, as a transport does."""
        while data and not self.closed:
            if not isinstance(self.protocol, asyncio.BufferedProtocol):
                self.protocol.data_received(data)
                return
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size], data = data[:size], data[size:]
            self.protocol.buffer_updated(size)

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def write(self, _data: bytes) -> None: ...

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed


class _Echo:
    """Answers a body with itself, and ``/parts`` as it comes."""

    def __init__(self) -> None:
        self.served: list[tuple[int, bytes, bytes]] = []

    def understand(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        return dict(fields)[b":path"]

    def length(self, head: bytes, begun: memoryview) -> int:
        return int.from_bytes(begun[1:5], "big") + 5

    def serve(self, connection: Answers, stream: int, head: bytes, body: Received) -> None:
        if head == b"/parts":
            connection.listen(stream, body)
        else:
            assert not isinstance(body, memoryview), "it may be used again"
            self.served.append((stream, head, bytes(body)))
            connection.answer(stream, b"\x88", (len(body), (bytes(body),)), b"\x88")

    def sink(self, connection: Answers, stream: int, head: bytes) -> Any:
        return _Parts(connection, stream) if head == b"/parts" else None


class _Parts:
    def __init__(self, connection: Answers, stream: int) -> None:
        self.connection, self.stream = connection, stream

    def data(self, data: bytes, *, ended: bool) -> None:
        self.connection.push(self.stream, data)
        if ended:
            self.connection.finish(self.stream, b"\x88")


_HEAD = b"\x83\x86\x44\x05/echo"
_PARTS = b"\x83\x86\x44\x06/parts"


@target(
    "net.http2.connection",
    "net.http2.requests",
    "net.http2.stream_table",
    seeds=[
        frames.frame(1, 4, 1, _HEAD)
        + frames.frame(0, 1, 1, b"body")
        + frames.frame(6, 0, 0, bytes(8)),
        frames.frame(1, 4, 1, _PARTS)
        + frames.frame(0, 0, 1, b"one")
        + frames.frame(0, 1, 1, b"two"),
        frames.settings({4: 1})
        + frames.frame(1, 0xD, 1, b"\x02" + _HEAD + b"--")
        + frames.window_update(1, 9),
        frames.frame(1, 4, 1, _HEAD)
        + frames.frame(0, 1, 1, b"\0\0\0\x0f\x37" + bytes(3895))
        + frames.frame(1, 5, 3, _HEAD),
        frames.frame(1, 4, 1, _HEAD)
        + b"".join(
            frames.frame(0, 0, 1, (b"\0\0\0\x0b\xb8" if not each else b"") + bytes(1500))
            for each in range(2)
        )
        + frames.frame(0, 1, 1, b"")
        + frames.frame(1, 4, 3, _HEAD)
        + frames.frame(0, 1, 3, b"last"),
        frames.frame(1, 1, 1, _HEAD[:4])
        + frames.frame(9, 4, 1, _HEAD[4:])
        + frames.frame(3, 0, 1, bytes(4)),
    ],
    words=["/echo", "/parts", "\x00\x00\x04\x08", "\x00\x00\x04\x03", "\x00\x00\x00\x04\x01"],
)
def model_frames(data: bytes) -> None:
    """Whatever a peer sends, it is answered or left; and nothing of it is kept.

    The same requests are served however it is cut, and by whichever way it is read.
    """
    expected: list[tuple[int, bytes, bytes]] | None = None
    for pieces in cuts(frames.PREFACE + frames.settings({}) + data):
        _frames_of(pieces, begun=16, direct=16, ticks=True)
        for begun, direct in ((MOST, MOST), (16, 16), (16, MOST)):
            served = _frames_of(pieces, begun=begun, direct=direct, ticks=False)
            assert expected is None or served == expected
            expected = served


def _frames_of(
    pieces: list[bytes], *, begun: int, direct: int, ticks: bool
) -> list[tuple[int, bytes, bytes]]:
    """What is served of it. Bodies of ``begun`` bytes are long, and ``direct`` are read straight
    to where they belong.
    """
    ground, service = cast("Any", _Ground()), _Echo()
    limits = Limits(MOST, lambda _stream: (), streams=8, resets=50, budget=(budget := Budget()))
    connection = ground.protocol = Http2Connection(service, limits, LoopIteration(ground))
    connection.connection_made(ground)
    short = {"DIRECT_BYTES": direct, "GLANCE": direct, "STAYS": 2}
    with (
        patch.object(http2_connection, "DIRECT_BYTES", begun),
        patch.multiple(body_reader, **short),
    ):
        for piece in pieces:
            ground.feed(piece)
            if ticks and not ground.closed:
                connection.tick(0.0)
    assert budget.held >= 0
    connection.connection_lost(None)
    assert budget.held == 0
    return service.served


_FLOATS = Signature(
    "s", (TensorSpec("x", dtypes.FLOAT, (-1,)),), (TensorSpec("y", dtypes.FLOAT, (-1,)),)
)


@target(
    "net.http2.grpc_timeout",
    seeds=["1S", "99999999H", "0n", "999999999S", "S", "", "-1S", "\u0661S"],
    words=["H", "m", "u", "9"],
)
def grpc_timeouts(data: bytes) -> None:
    """Seconds within what eight digits of hours can say, or nothing and a sentence."""
    seconds = parse_timeout(data)
    if seconds is None:
        assert wrong_timeout(data).isprintable()
    else:
        assert 0 <= seconds <= 99_999_999 * 3600


@target(
    "serving.codecs.infer_request",
    seeds=[
        b"\n\x01m\x1a\x02id*\x0c\n\x01x\x12\x04FP32\x1a\x01\x02:\x08\x00\x00@@\x00\x00\x80@",
        b"\n\x01m*\x18\n\x01x\x12\x04FP32\x1a\x01\x02*\x0a2\x08\x00\x00@@\x00\x00\x80@",
    ],
    words=["FP32", "BYTES", "\x3a\x00", "\x1a\x01z", "\x0b\x0c"],
)
def model_inference(data: bytes) -> None:
    """Refused; or known by its bytes with the values that the library reads."""
    try:
        request = message("inference.ModelInferRequest").FromString(data)
        (array,) = infer_request.arrays_of(_FLOATS, request)
    except (DecodeError, ServingError):
        return
    spans = infer_request.infer_spans(data, 0, _FLOATS, request)
    if spans is not None:
        assert data[spans[0][0] : spans[0][1]] == array.tobytes()
        assert [data[start:end] for start, end in spans[1:]] in ([], [request.id.encode()])

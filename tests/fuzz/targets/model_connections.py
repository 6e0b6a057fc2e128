"""What comes over connections to a server of models, and how it is cut on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError

from cloud_ml.net.http1.calls import CONTINUE
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.headers import Blocks, WatchedTable, is_malformed
from fuzz.harness import cuts, target
from fuzz.model_world import INFER, PREDICT, World
from fuzz.targets.model_requests import INFERENCES, PREDICTIONS

SEPARATOR = b"<;>"


def _written(connect: Callable[[World], tuple[Any, Any]], parts: list[bytes]) -> tuple[bytes, bool]:
    """What a server writes to who sends these, and whether it hangs up."""
    world = World()
    connection, transport = connect(world)
    for part in parts:
        if not transport.closed:
            connection.data_received(part)
    world.loop.settle()
    connection.connection_lost(None)
    return transport.written.replace(
        CONTINUE, b""
    ), transport.closed  # it hangs on whether the body is there already


def _does_not_hang_on_cuts(
    connect: Callable[[World], tuple[Any, Any]], data: bytes, lead: bytes = b""
) -> bytes:
    whole = _written(connect, [lead + data])
    if len(data) < 600:
        for cut in cuts(data):
            assert _written(connect, [lead, *cut] if lead else cut) == whole
    return whole[0]


def _http(path: str, body: bytes, fields: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        fields,
        len(body),
        body,
    )


_V1, _V2 = "/v1/models/m:predict", "/v2/models/m/infer"
_INPUT = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}'
_BINARY = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}'
)


@target(
    "net.http1.connection", "net.http1.calls", "net.http1.heads", "serving.rest.service", "serving.rest.routes", "serving.rest.predict",
    "serving.oip.routes", "serving.oip.requests", "serving.oip.infer", "serving.codecs.json_answers", "serving.codecs.json_documents",
    seeds=[_http(_V1, b'{"instances": [[1, 2], [3.5, NaN]]}'), _http(_V2, _INPUT) + _http(_V1, b'{"inputs": {"x": [[1]]}}'),
           _http(_V2, _BINARY + b"abcdefgh", b"Inference-Header-Content-Length: %d\r\n" % len(_BINARY)),
           _http(_V1, b'{"signature_name": "text", "instances": ["a", {"b64": "AA"}]}'), b"GET /v1/models/m/metadata HTTP/1.1\r\nHost: h\r\n\r\n",
           b"POST /v2/repository/models/m/load HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", b"GET /v1/models/m/versions/9 HTTP/1.0\r\n\r\n",
           b"POST /v1/models/m:predict HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ins\r\n5\r\ntance\r\n0\r\n\r\n",
           b"GET /v1/models/%ff HTTP/1.1\r\nHost: h\r\n\r\n", _http(_V1, b'{"instances": [' + b"[1,2]," * 300 + b"[1,2]]}"),
           _http("/v1/models/m:classify", b'{"examples": [{"x": [1.0, 2.0]}]}'), _http(_V1, b'{"signature_name": "mixed", "instances": [{"x": [1, 2], "k": 3}]}')],
    words=['"instances"', '"inputs"', '"signature_name"', "text", "mixed", "[", "]", "{", "}", ",", "1e999", "NaN", "\\u00", "Content-Length: 9", "Expect: 100-continue\r\n",
           "\r\n", '"b64"', "/versions/1", "/labels/", "%2f", "Connection: close\r\n", '"binary_data_size"', "18446744073709551616", "chunked"],
)  # fmt: skip
def model_http1(data: bytes) -> None:
    """Answered alike however it is cut, and never by an error of the server's own."""
    written = _does_not_hang_on_cuts(World.http1, data)
    assert b"HTTP/1.1 500 " not in written


def _invocation(body: bytes, kind: bytes = b"application/json") -> bytes:
    return _http("/invocations", body, b"Content-Type: %b\r\n" % kind)


@target(
    "serving.rest.dataframes", "serving.rest.invocations",
    seeds=[_invocation(b'{"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3.5, null]], "index": [0, 1]}}'),
           _invocation(b'{"dataframe_records": [{"x": [1, 2], "k": 3}, {"k": 4}], "params": {"signature_name": "mixed"}}'),
           _invocation(b'{"dataframe_records": [{"t": "a"}, {"t": null}], "params": {"signature_name": "text"}}'),
           _invocation(b'{"instances": [[1, 2]]}') + _invocation(b'{"inputs": {"x": [[1, 2]]}}'), _invocation(b"a,b\r\n1,2\r\n,nan\r\n", b"text/csv"),
           _invocation(b'"1","2"\n"""",4', b"text/csv; header=absent"), _invocation(b"", b"text/csv"), b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n"],
    words=['"dataframe_split"', '"dataframe_records"', '"columns"', '"data"', '"index"', '"params"', '"signature_name"', "truth", "half", "fixed", "null", "true", '"', ",",
           "\n", "1e999", "NaN", "0x1", "1_0", "\xb2", "Content-Type: text/csv\r\n"],
)  # fmt: skip
def invocations(data: bytes) -> None:
    """Answered alike however it is cut, and never by an error of the server's own."""
    written = _does_not_hang_on_cuts(World.http1, data)
    assert b"HTTP/1.1 500 " not in written


def _asks(
    path: str,
    message: bytes,
    *more: tuple[str, str],
    stream: int = 1,
    encoder: Encoder | None = None,
) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    block = (encoder or Encoder()).encode([*fields, *more])
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return frames.frame(frames.HEADERS, 0x4, stream, block) + frames.frame(
        frames.DATA, 0x1, stream, body
    )


_LEAD = frames.PREFACE + frames.settings({})
_KEPT = Encoder()


@target(
    "net.http2.connection", "net.http2.requests", "net.http2.stream_table", "net.http2.outgoing", "net.http2.frames", "net.http2.headers", "serving.grpc.service", "serving.grpc.calls",
    seeds=[_asks(PREDICT, PREDICTIONS[0]), _asks(INFER, INFERENCES[1], ("grpc-timeout", "1S"), ("grpc-encoding", "gzip")),
           _asks(PREDICT, PREDICTIONS[0], encoder=_KEPT) + _asks(PREDICT, PREDICTIONS[2], stream=3, encoder=_KEPT) + _asks(INFER, INFERENCES[0], stream=5, encoder=_KEPT),
           frames.settings({4: 3, 5: 16384}) + _asks(PREDICT, PREDICTIONS[0]) + frames.window_update(1, 5) + frames.reset(1, 8),
           frames.frame(frames.HEADERS, 0, 1, b"\x83") + frames.frame(frames.CONTINUATION, 4, 1, b"\x86") + frames.frame(frames.DATA, 9, 1, b"\x02aab"),
           frames.frame(frames.PING, 0, 0, b"12345678") + frames.goaway(0, 0) + frames.frame(frames.PRIORITY, 0, 1, b"12345"), _asks("/none", b""), b"\0\0\0\x4d\0"],
    words=[frames.settings({}), frames.window_update(0, 1), frames.window_update(1, 2**31 - 1), frames.reset(1, 8), frames.frame(0, 1, 1, b""), b"\0\0\x01", b"\xff",
           frames.frame(frames.CONTINUATION, 4, 1, b"\x83"), frames.frame(frames.DATA, 0x8, 1, b"\xff"), _asks("/x", b"", stream=7)],
)  # fmt: skip
def model_http2(data: bytes) -> None:
    """Answered alike however it is cut: whole frames, of streams that were opened, and at most
    one GOAWAY, the last.
    """
    written = _does_not_hang_on_cuts(World.http2, data, _LEAD)
    kinds, at = [], 0
    while at < len(written):
        high, low, kind, _flags, number = frames.HEAD.unpack_from(written, at)
        assert kind in range(10)
        assert number % 2 == 1 or number == 0
        kinds.append(kind)
        at += 9 + (high << 8 | low)
    assert at == len(written)
    assert frames.GOAWAY not in kinds[:-1]


@target(
    "net.http2.headers",
    seeds=[SEPARATOR.join([Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", "/a")]), b"\x83\x86\x84", b"\x83\x86\x84"]),
           SEPARATOR.join([b"\x83\x86\x44\x01/", b"\xbe\x83\x86", b"\xbe\x83\x86", b"\x40\x01a\x01b", b"\xbe\x83\x86\x84"]), b"\x3f\xe1\x1f\x83\x86\x84" + SEPARATOR + b"\x20\xbe"],
    words=[SEPARATOR, b"\x83\x86\x84", b"\xbe", b"\x40\x01a\x01b", b"\x20", b"\x3f\xe1\x1f", b"\x00\x01A\x01b", b"\x44\x01/"],
)  # fmt: skip
def model_heads(data: bytes) -> None:
    """What is remembered of blocks means what a decoder without memory makes of the same; each
    third is read as trailers.
    """
    heads = Blocks(lambda fields: None if is_malformed(fields) else fields, 16_384)
    plain, table = Decoder(max_header_list_size=16_384), WatchedTable()
    plain.header_table = table  # which bounds how often a block may change its size
    for place, block in enumerate(data.split(SEPARATOR)):
        passed = place % 3 == 2
        table.size_updates = 0
        try:
            fields: Any = [(name, value) for name, value in plain.decode(block, raw=True)]
        except (HPACKError, UnicodeDecodeError, IndexError):
            fields = frames.ConnectionFault
        try:
            read = heads.fields(block) if passed else heads.read(block)
        except frames.ConnectionFault:
            assert fields is frames.ConnectionFault
            return
        assert fields is not frames.ConnectionFault
        assert read == (fields if passed or not is_malformed(fields) else None)

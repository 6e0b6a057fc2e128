"""What a client reads of a model server that may be anybody's, and what the platform reads of
replicas.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from hpack import Decoder

from cloud_ml.api.v1_compat import model
from cloud_ml.errors import CloudMlError, InvalidRequest, TransportError
from cloud_ml.models import codec
from cloud_ml.net.client.errors import CallLost, NotHttp
from cloud_ml.net.client.header_blocks import HeaderBlocks, encode_block
from cloud_ml.net.client.unary_call import UnaryCall
from cloud_ml.net.http2 import frames
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.models import grpc, inference, tensors
from cloud_ml.usecases.models import replicas
from fuzz.harness import cuts, target

_HEADERS = encode_block([(":status", "200"), ("content-type", "application/grpc")])
_TRAILERS = encode_block([("grpc-status", "3"), ("grpc-message", "no%20such")])
_ANSWER = b"\x0a\x16\x0a\x01y\x12\x11\x08\x01\x12\x04\x12\x02\x08\x02\x2a\x07\x00\x00\x80?"


def _frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return frames.frame(kind, flags, stream, payload)


@target(
    "net.client.header_blocks",
    seeds=[_HEADERS, _TRAILERS, b"\x88\x40\x0acustom-key\x0dcustom-header\xbe", b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3ak\xa0\xab\x90\xf4\xff",
           b"\x3f\xe1\x1f\x88", b"\x80", b"\x40\x01a\x01b<;>\xbe<;>\x40\x01c\x01d\xbf<;>\x20\x88<;>\xbe", b"\x88\x20", b"\xff\xff\xff\xff\xff\x0f", b"\x00\x7f\xff\xff\xff\xff\x0f"],
)  # fmt: skip
def header_blocks(data: bytes) -> None:
    """A block is read or refused, and no block is read that another decoder refuses or reads in
    another way.
    """
    reader, other = HeaderBlocks(), Decoder(max_header_list_size=64 * 1024)
    other.max_allowed_table_size = 64 * 1024
    for block in data.split(b"<;>"):
        try:
            read = reader.read(block)
        except NotHttp:
            break
        fields = other.decode(block, raw=True)
        assert read == {
            bytes(n).decode("utf-8", "replace"): bytes(v).decode("utf-8", "replace")
            for n, v in fields
        }
    reader = HeaderBlocks()
    with contextlib.suppress(NotHttp):
        found = reader.read(data)
        assert sum(len(name) + len(value) for name, value in found.items()) <= 64 * 1024
        if all("\ufffd" not in name + value for name, value in found.items()):
            assert HeaderBlocks().read(encode_block(found.items())) == found


class _Wire:
    """A socket on which an answer has arrived."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)

    def settimeout(self, _seconds: float) -> None: ...
    def sendall(self, _content: bytes) -> None: ...

    def recv(self, _size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@target(
    "sdk.models.grpc",
    "net.client.unary_call",
    seeds=[_frame(4, 0, b"", 0) + _frame(1, 4, _HEADERS) + _frame(0, 0, b"\0\0\0\0\x03abc") + _frame(1, 5, encode_block([("grpc-status", "0")])),
           _frame(1, 5, _HEADERS + _TRAILERS), _frame(0, 8, b"\x09ab"), _frame(1, 40, b"\x01\0\0\0\0\0"), _frame(3, 0, b"\0\0\0\x07"),
           _frame(7, 0, b"\0\0\0\0\0\0\0\0", 0), _frame(4, 0, b"\0\x04\xff\xff\xff\xff\0\x05\0\0\0\0", 0), b"HTTP/1.1 400 Bad Request\r\n\r\n"],
)  # fmt: skip
def grpc_answers(data: bytes) -> None:
    """An answer is the same however it arrives; whatever is none is an error that says so."""

    def ask(pieces: list[bytes]) -> tuple[str, bytes]:
        call = UnaryCall([(":path", "/s/m")], b"question", most_bytes=grpc.MOST_BYTES)
        try:
            grpc.exchange(_Wire(pieces), call, time.monotonic() + 60.0)
            return "", grpc.message_of(call, parse_endpoint("http://h:1"))
        except (CloudMlError, NotHttp, CallLost, OSError) as error:
            return f"{type(error).__name__} {error}", b""

    whole = ask([data])
    for cut in cuts(data[:500]):
        assert len(data) > 500 or ask([piece for piece in cut if piece]) == whole


@target(
    "sdk.models.tensors",
    "sdk.models.shortest",
    seeds=[_ANSWER, b"\x0a\x0f\x0a\x01y\x12\x0a\x08\x01\x12\x00\x22\x04\x9a\x99\x99=", b"\x0a\x0b\x0a\x01y\x12\x06\x08\x07\x42\x02hi", b"\x0a\x0e\x0a\x01y\x12\x09\x08\x09\x52\x05\x80\x80\x80\x80\x7f",
           b"\x0a\x10\x0a\x01y\x12\x0b\x08\x01\x12\x07\x12\x05\x08\xff\xff\xff\x7f", b"\x12\x04text"],
)  # fmt: skip
def predictions(data: bytes) -> None:
    """Outputs are plain values, or the answer is refused; it costs no more than it has values."""
    try:
        found = [tensors.predict_response(data, short=short) for short in (False, True)]
    except TransportError:
        return
    json.dumps(found)


@target(
    "sdk.models.tensors",
    "sdk.models.inference",
    seeds=['{"X": [[10.0]], "X_dtype": '
           '"float32"}', '{"X": [1, "a"]}', '{"X": [[1], [2, 3]]}', '{"X_dtype": 5, "X": '
                                                                                               '1}', '{"a": {"b64": "!"}}',
           '{"error": "no"}', '{"X": [true], "X_dtype": "bool"}', '{"X": [300], "X_dtype": '
                                                                  '"uint8"}', '{"X": NaN}', "[1]"],
    words=['"X"', "_dtype", "float32", "int64", '"b64"'],
)  # fmt: skip
def data_files(data: bytes) -> None:
    """A data file becomes a request, or is refused with the name of what is wrong."""
    inference.refusal_of(400, data)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(
        InvalidRequest, UnicodeEncodeError, RecursionError
    ):  # halves of surrogate pairs
        inputs = inference.read_inputs(document)
        if isinstance(inputs.values, dict):
            assert tensors.predict_request("linear", inputs.values, inputs.types, inputs.signature)


_METADATA = {
    "model_spec": {"name": "linear", "version": "1"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "inputs": {
                        "x": {
                            "dtype": "DT_FLOAT",
                            "tensor_shape": {"dim": [{"size": "-1"}], "unknown_rank": False},
                        }
                    },
                    "outputs": {},
                    "method_name": "m",
                }
            }
        }
    },
}


@target(
    "usecases.models.replicas",
    seeds=[json.dumps(_METADATA), json.dumps(_METADATA).replace('"1"', '"x"'), '{"model_spec": []}', "null",
           'cloudml_serving_requests_total{model="a",code="OK"} '
           '5\ncloudml_serving_request_seconds_sum{a="b"} 1e5\n',
           "cloudml_serving_requests_total 1e999\n", "cloudml_serving_refused_total{} -\n"],
    words=["cloudml_serving_requests_total", '{code="OK"}', " 1\n"],
)  # fmt: skip
def replica_reports(data: bytes) -> None:
    """A replica may say what it likes: it is figures and signatures, or it is not heeded."""
    text = data.decode("utf-8", "replace")
    counted = replicas._sum_figures(text)
    assert all(isinstance(int(value), int) for value in counted.values())
    read: Callable[[Any], Any] = replicas._signatures
    with contextlib.suppress(*replicas.ANSWER_ERRORS):
        read(json.loads(text))


@target(
    "api.v1_compat.model",
    seeds=[
        "replicas=2&cpu_limit=0.5",
        '{"replicas": 2}',
        "replicas=",
        "port=1",
        "%ff=%00&a",
        "a=1&" * 200,
        "{",
        b"\xff",
    ],
    words=["replicas=", "model_uri=", "&", "%"],
)
def forms(data: bytes) -> None:
    """A change as a form or as JSON is fields that there are, or is refused by name."""
    with contextlib.suppress(InvalidRequest):
        assert codec.encode(model._change(data))

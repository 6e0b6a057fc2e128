"""Requests for predictions: what is recognised by its bytes means what the library reads from
them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from cloud_ml.net.compression import decompressed
from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import raw_tensors, tensor_proto, wire
from cloud_ml.serving.errors import ServingError, TooLarge
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import TensorSpec
from fuzz.harness import target
from fuzz.model_world import INFER, MOST, PREDICT, World

_INTERNAL = (2, 13)


def predict(signature: str = "", **tensors: tuple[int, Any]) -> bytes:
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name, made.model_spec.signature_name = "m", signature
    for name, (number, values) in tensors.items():
        tensor, array = made.inputs[name], np.asarray(values, dtypes.BY_NUMBER[number].numpy)
        tensor.dtype = number
        for size in array.shape:
            tensor.tensor_shape.dim.add(size=size)
        if number == 7:
            tensor.string_val.extend(values)
        else:
            tensor.tensor_content = array.tobytes()
    return bytes(made.SerializeToString(deterministic=True))


def infer(signature: str = "", request_id: str = "", **tensors: tuple[str, Any]) -> bytes:
    made = message("inference.ModelInferRequest")(model_name="m", id=request_id)
    if signature:
        made.parameters["signature_name"].string_param = signature
    for name, (kind, values) in tensors.items():
        array = np.asarray(values, dtypes.BY_OIP[kind].numpy)
        made.inputs.add(name=name, datatype=kind, shape=array.shape)
        made.raw_input_contents.append(array.tobytes())
    return bytes(made.SerializeToString(deterministic=True))


def _entry(*fields: bytes) -> bytes:
    return wire.encode_delimited(
        1, wire.encode_delimited(1, b"m") + wire.encode_delimited(3, b"two")
    ) + b"".join(wire.encode_delimited(2, field) for field in fields)


_TENSOR = tensor_proto.header(dtypes.FLOAT, (1, 2)) + wire.encode_delimited(4, b"abcdefgh")
_OTHER = tensor_proto.header(dtypes.FLOAT, (1, 2)) + wire.encode_delimited(5, b"ABCDEFGH")
_X, _X2 = wire.encode_delimited(1, b"x"), wire.encode_delimited(1, b"x2")
_NUMBERS = [[1.5, 2.5], [3.5, 4.5]]
PREDICTIONS = [
    predict(x=(1, _NUMBERS)),
    predict("mixed", x=(1, _NUMBERS), k=(9, [1, 2])),
    predict("two", x=(1, _NUMBERS), x2=(1, _NUMBERS)),
    predict("text", t=(7, [b"a", b"\xff"])),
    predict("half", h=(19, [1.0, 2.0])),
    predict("truth", b=(10, [True, False])),
    predict("fixed", f=(2, [1.0, 2.0])),
    _entry(_X + wire.encode_delimited(2, _TENSOR), _X2 + wire.encode_delimited(2, _OTHER)),
    # the last name counts
    _entry(
        _X + wire.encode_delimited(2, _TENSOR) + _X2, _X2 + wire.encode_delimited(2, _OTHER) + _X
    ),
    _entry(
        _X
        + wire.encode_delimited(2, _TENSOR)
        + wire.encode_delimited(2, wire.encode_delimited(4, b"hgfedcba")),
        _X2 + wire.encode_delimited(2, _OTHER),
    ),
    # a group nobody knows
    _entry(_X + wire.encode_delimited(2, _TENSOR), _X2 + wire.encode_delimited(2, _OTHER))
    + b"\x9b\x06\x9c\x06",
]
INFERENCES = [
    infer(x=("FP32", _NUMBERS)),
    infer("", "an-id", x=("FP32", _NUMBERS)),
    infer("two", "", x=("FP32", _NUMBERS), x2=("FP32", _NUMBERS)),
    infer("mixed", "7", x=("FP32", _NUMBERS), k=("INT64", [1, 2])),
    infer("half", "", h=("FP16", [1.0, 2.0])),
    infer("truth", "", b=("BOOL", [True, False])),
    infer(x=("FP32", _NUMBERS)) + wire.key(3, wire.VARINT) + b"\x05",  # an id that is none
    infer(x=("FP32", _NUMBERS)) + b"\x9b\x06\x9c\x06",
]


def altered(seeds: list[bytes], data: bytes) -> tuple[bytes, bytes]:
    """A seed, and the same with bytes changed: a pair of ``data`` for each."""
    seed = seeds[data[0] % len(seeds)] if data else seeds[0]
    made = bytearray(seed)
    for at in range(1, len(data) - 1, 2):
        made[data[at] % len(made)] = data[at + 1]
    return seed, bytes(made)


def agrees(method: str, seed: bytes, data: bytes) -> tuple[int, bytes]:
    """What knows the seed answers other bytes as what has met nothing before; and nothing
    breaks.
    """
    fresh = World().call(method, data)
    knowing = World()
    knowing.call(method, seed)
    assert knowing.call(method, data) == fresh
    assert knowing.call(method, data) == fresh  # met before, by now
    assert fresh[0] not in _INTERNAL, fresh
    return fresh


@target(
    "serving.codecs.layouts", "serving.codecs.tensor_proto", "serving.codecs.predict_answer", "serving.grpc.prediction",
    "serving.grpc.messages", "serving.batching",
    seeds=[*PREDICTIONS, *(bytes([place, 40, 65]) for place in range(len(PREDICTIONS)))],
    words=[_X, _X2, wire.encode_delimited(2, _TENSOR), b"\x22\x08abcdefgh", b"\x2a\x08abcdefgh", b"\x08\x01", b"\x12\x08", b"\x9b\x06", b"\x9c\x06"],
)  # fmt: skip
def model_predict(data: bytes) -> None:
    """Answered as the library reads it, whatever was met before; a good answer holds the values
    that were sent.
    """
    for seed, altered_body in ((PREDICTIONS[0], data), altered(PREDICTIONS, data)):
        status, answer = agrees(PREDICT, seed, altered_body)
        if status:
            continue
        sent = message("tensorflow.serving.PredictRequest").FromString(altered_body)
        got = message("tensorflow.serving.PredictResponse").FromString(answer)
        for name in got.outputs:
            one, other = (
                tensor_proto.decode(name, proto)
                for proto in (sent.inputs[name[:-1]], got.outputs[name])
            )
            assert one.tobytes() == other.tobytes() or (
                one.dtype == object and one.tolist() == other.tolist()
            )
            assert one.shape == other.shape


@target(
    "serving.codecs.infer_request", "serving.codecs.infer_answer", "serving.grpc.infer",
    seeds=[*INFERENCES, *(bytes([place, 2, 255, 60, 1]) for place in range(len(INFERENCES)))],
    words=[b"\x3a\x10", b"\x1a\x05", b"\x18\x05", b"\x38\x05", b"\x9b\x06", b"\x9c\x06", wire.encode_delimited(3, b"\xff\xfe"), wire.encode_delimited(7, b"12345678")],
)  # fmt: skip
def model_infer(data: bytes) -> None:
    """The same for the Open Inference Protocol, whose answers repeat the id."""
    for seed, altered_body in ((INFERENCES[1], data), altered(INFERENCES, data)):
        status, answer = agrees(INFER, seed, altered_body)
        if status:
            continue
        sent = message("inference.ModelInferRequest").FromString(altered_body)
        got = message("inference.ModelInferResponse").FromString(answer)
        assert got.id == sent.id
        if sent.raw_input_contents:
            names = {
                f"{each.name}_": raw
                for each, raw in zip(sent.inputs, sent.raw_input_contents, strict=True)
            }
            for output, raw in zip(got.outputs, got.raw_output_contents, strict=True):
                expected_data = names[output.name]
                assert raw == (
                    bytes(map(bool, expected_data)) if output.datatype == "BOOL" else expected_data
                )


@target(
    "serving.codecs.tensor_proto",
    seeds=[_TENSOR, _OTHER, tensor_proto.encode(dtypes.INT8, np.int8([[-1, 127]])), b"\x08\x07\x12\x04\x12\x02\x08\x02\x42\x01a",
           tensor_proto.encode(dtypes.BFLOAT16, np.asarray([1.5], dtypes.BFLOAT16.numpy)), b"\x08\x01\x12\x0c\x12\x0a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"],
    words=[b"\x12\x04\x12\x02\x08\x02", b"\x12\x02\x18\x01", b"\x22\x08", b"\x38\x80\x02", b"\x4a\x04", b"\x6a\x02"],
)  # fmt: skip
def model_tensor(data: bytes) -> None:
    """Refused; or an array that has the shape and type that were said, and comes back the same."""
    try:
        proto = message("tensorflow.TensorProto").FromString(data)
        array = tensor_proto.decode("x", proto)
    except (DecodeError, ServingError):
        return
    if array.nbytes > MOST:
        return
    dtype = dtypes.BY_NUMBER[proto.dtype]
    assert array.shape == tuple(dim.size for dim in proto.tensor_shape.dim)
    again = tensor_proto.decode(
        "x", message("tensorflow.TensorProto").FromString(tensor_proto.encode(dtype, array))
    )
    if dtype is dtypes.STRING:
        assert again.tolist() == array.tolist()
    elif array.size:
        assert again.tobytes() == array.tobytes()


@target(
    "serving.codecs.raw_tensors",
    seeds=[
        b"\x02\x01\x00\x00\x00a\x00\x00\x00\x00",
        b"\x01\xff\xff\xff\xffa",
        b"\x00",
        b"\x03\x01\x00\x00\x00",
    ],
    words=[b"\0\0\0\0", b"\x01\0\0\0", b"\xff"],
)
def model_strings(data: bytes) -> None:
    """Refused; or as many strings as the shape takes, which are written as they came."""
    count, data = (data[0], data[1:]) if data else (0, b"")
    spec = TensorSpec("t", dtypes.STRING, (-1,))
    try:
        made: Any = raw_tensors.read(data, spec, (count,))
    except ServingError:
        return
    assert made.shape == (count,)
    assert raw_tensors.write(made, spec) == data


@target(
    "net.compression",
    seeds=[b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00", b"x\x9cK\x04\x00\x00b\x00b", b"x\x9c"],
    words=[b"\x1f\x8b\x08\x00", b"x\x9c", b"\0\0\0\0"],
)  # fmt: skip
def model_compressed(data: bytes) -> None:
    """Refused; or what was compressed, within its bound."""
    for encoding in ("gzip", "deflate"):
        try:
            assert len(decompressed(data, encoding, 1000)) <= 1000
        except TooLarge as error:
            assert re.search("1000", error.message)  # noqa: PT017
        except ServingError:
            pass

"""The tensors of a ``ModelInferRequest``: raw, or as lists of values."""

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import wire
from cloud_ml.serving.codecs.infer_parameters import check_parameters, values_of
from cloud_ml.serving.codecs.layouts import Spans
from cloud_ml.serving.codecs.tensor_proto import LARGEST
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature

FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Which list has the values of a type; the others have a raw form only."""

_SIZE = struct.Struct("<L")


def arrays_of(signature: Signature, request: Any) -> list[Array]:
    """The inputs of a request, judged and in the order of the signature.

    Raises:
        BadRequest: where they are not what the signature takes.
    """
    with signature.explained_refusals():
        return _arrays_of(signature, request)


def _arrays_of(signature: Signature, request: Any) -> list[Array]:
    places = {proto.name: place for place, proto in enumerate(request.inputs)}
    if len(places) != len(request.inputs):
        raise BadRequest(f"an input is there twice: {signature}")
    signature.check_names(places)
    raws = request.raw_input_contents
    if raws and len(raws) != len(request.inputs):
        raise BadRequest(
            f"raw_input_contents has {len(raws)} entries for {len(request.inputs)} inputs"
        )
    made = []
    for spec in signature.inputs:
        proto = request.inputs[places[spec.name]]
        dtype, shape = dtypes.BY_OIP.get(proto.datatype), tuple(proto.shape)
        if dtype is None:
            raise BadRequest(
                f"input {spec.name!r} has datatype {proto.datatype!r}; known: "
                f"{', '.join(dtypes.BY_OIP)}"
            )
        if any(size < 0 for size in shape):
            raise BadRequest(f"input {spec.name!r} has shape {list(shape)}: sizes are 0 or more")
        signature.check_tensor(spec, dtype, shape)
        if proto.parameters:
            check_parameters(f"input {spec.name!r}", values_of(proto.parameters))
        if prod(shape) * max(dtype.size, 1) > LARGEST:
            raise BadRequest(
                f"input {spec.name!r} of shape {list(shape)} is larger than {LARGEST} bytes"
            )
        if raws and proto.HasField("contents"):
            raise BadRequest(
                f"input {spec.name!r} has contents beside raw_input_contents; one of them is enough"
            )
        flat = (
            _raw(spec.name, dtype, raws[places[spec.name]])
            if raws
            else _convert_contents(spec.name, dtype, proto.contents)
        )
        if flat.size != prod(shape):
            raise BadRequest(f"input {spec.name!r} has {flat.size} values for shape {list(shape)}")
        made.append(flat.reshape(shape))
    return made


def _convert_contents(name: str, dtype: DType, contents: Any) -> Array:
    field = FIELDS.get(dtype.oip or "")
    if field is None:
        raise BadRequest(
            f"input {name!r}: {dtype.oip} has no typed contents; send it in raw_input_contents"
        )
    values = getattr(contents, field)
    if dtype is dtypes.STRING:
        made: Array = np.empty(len(values), object)
        made[:] = values
        return made
    wide = np.asarray(
        values, np.int64 if field in ("int_contents", "uint_contents") else dtype.numpy
    )
    if wide.dtype != dtype.numpy and wide.size:
        bounds = np.iinfo(dtype.name)
        if wide.min() < bounds.min or wide.max() > bounds.max:
            raise BadRequest(f"input {name!r} has a value that is no {dtype.oip}")
    return wide.astype(dtype.numpy, copy=False)


def _raw(name: str, dtype: DType, raw: bytes) -> Array:
    if dtype is dtypes.STRING:
        return _strings(name, raw)
    if len(raw) % dtype.size:
        raise BadRequest(
            f"input {name!r} has {len(raw)} raw bytes; {dtype.oip} takes {dtype.size} for "
            "each value"
        )
    # Clients send any byte but 0 for true. An array of truth values may hold 0 and 1 only.
    if dtype is dtypes.BOOL:
        truth: Array = np.frombuffer(raw, np.uint8) != 0
        return truth
    return np.frombuffer(raw, dtype.numpy)


def _strings(name: str, raw: bytes) -> Array:
    """Elements with their length before each, in four bytes."""
    values, at = [], 0
    while at < len(raw):
        start = at + 4
        at = start + _SIZE.unpack_from(raw, at)[0] if start <= len(raw) else start
        if at > len(raw):
            raise BadRequest(f"input {name!r}: raw bytes end inside an element")
        values.append(raw[start:at])
    made: Array = np.empty(len(values), object)
    made[:] = values
    return made


def packed_strings(array: Array) -> bytes:
    """The raw form of strings."""
    values = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel()]
    return b"".join(part for value in values for part in (_SIZE.pack(len(value)), value))


def infer_spans(body: Received, at: int, signature: Signature, request: Any) -> Spans | None:
    """Where raw values lie in a request that was judged, in the order of the signature, and last
    its id, if it has one.

    None where values are not raw numbers. All other bytes are compared when a layout is made of
    this, so the number of values and of ids is always the same: see ``layouts``. Only an id could
    be no text, so its bytes are looked at.
    """
    if len(request.raw_input_contents) != len(request.inputs):
        return None
    if any(spec.dtype in (dtypes.STRING, dtypes.BOOL) for spec in signature.inputs):
        return None
    raws: list[tuple[int, int]] = []
    ids: list[tuple[int, int]] = []
    try:
        for number, kind, start, end in wire.fields(body, at, len(body)):
            if number in (3, 7) and kind != wire.DELIMITED:
                return None
            if number == 7:
                raws.append((start, end))
            elif number == 3:
                ids.append((start, end))
    except wire.Malformed:  # unknown fields may be groups, which the library passes over
        return None
    if len(raws) != len(request.inputs) or len(ids) > 1 or any(start == end for start, end in raws):
        return None
    names = [proto.name for proto in request.inputs]
    return [*_order_spans(signature, names, raws), *ids]


def _order_spans(signature: Signature, names: Sequence[str], raws: Spans) -> Spans:
    return [raws[names.index(spec.name)] for spec in signature.inputs]

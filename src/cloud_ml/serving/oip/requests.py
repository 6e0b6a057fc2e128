"""What a request for inference holds: a document, and behind it the bytes of tensors."""

from typing import Any, NamedTuple

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Values
from cloud_ml.serving.codecs import json_documents, raw_tensors
from cloud_ml.serving.codecs.infer_parameters import check_parameters
from cloud_ml.serving.codecs.json_numbers import WORTH, Numbers
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.signatures import Shape, Signature, TensorSpec

_DATA = b'"data"'
_KEYS = (b'"inputs"', b'"outputs"')
_NO_PARAMETERS: dict[str, Any] = {}
_numbers = Numbers()


class RequestedOutput(NamedTuple):
    """An output that was asked for: its place in the signature, and whether its values come as
    bytes.
    """

    place: int
    binary: bool


class InferBody(NamedTuple):
    """A document, the lists of numbers that were left out of it (in place of each is its
    number), and what follows.
    """

    document: dict[str, Any]
    lists: list[bytes]
    rest: bytes


def split(body: bytes, header_length: str | None) -> InferBody:
    """The parts of a body; ``header_length`` is ``Inference-Header-Content-Length``.

    Raises:
        BadRequest: where the length or the document is wrong.
    """
    text, rest = body, b""
    if header_length is not None:
        # `int` refuses more than 4,300 digits with a ValueError (CVE-2020-10735).
        if not (
            header_length.isascii() and header_length.isdigit() and len(header_length) < 19
        ) or int(header_length) > len(body):
            raise BadRequest(
                f"Inference-Header-Content-Length is {header_length[:30]!r}, "
                f"the body has {len(body)} bytes"
            )
        text, rest = body[: int(header_length)], body[int(header_length) :]
    if len(text) >= WORTH:
        short, lists = _without_lists(text)
        if lists:
            return InferBody(json_documents.document(short, *_KEYS), lists, rest)
    return InferBody(json_documents.document(text, *_KEYS), [], rest)


def _without_lists(text: bytes) -> tuple[bytes, list[bytes]]:
    """The document with a number in place of each flat list called data. Nothing is left out where
    one is not flat.

    Between quotes, a quote has a backslash before it: what looks like the key is the key. A key
    that is written with an escape for a letter does not look like it, and could have a number that
    is taken for that of a list. Nothing is left out then.
    """
    parts: list[bytes] = []
    lists: list[bytes] = []
    at = 0
    while (found := text.find(_DATA, at)) >= 0:
        start = text.find(b"[", found)
        end = text.find(b"]", start) + 1
        if (
            start < 0
            or not end
            or text[found + len(_DATA) : start].translate(None, b" \t\r\n") != b":"
        ):
            return text, []
        if text.find(b"[", start + 1, end) >= 0 or text.find(b'"', start, end) >= 0:
            return text, []
        parts += (
            text[at:start],
            b"%d " % len(lists),
        )  # with a space: a digit behind the list belongs to no number
        lists.append(text[start:end])
        at = end
    parts.append(text[at:])
    short = b"".join(parts)
    return (text, []) if b"\\u00" in short else (short, lists)


def tensors(signature: Signature, infer_body: InferBody) -> tuple[tuple[Shape, ...], list[Values]]:
    """The inputs in the order of the signature.

    Raises:
        BadRequest: for what the signature does not take.
    """
    given = infer_body.document.get("inputs")
    if type(given) is not list or not all(type(each) is dict for each in given):
        raise BadRequest(f"'inputs' is not a list of objects: {signature}")
    named: dict[str, tuple[Shape, Values]] = {}
    specs = {spec.name: spec for spec in signature.inputs}
    at = lists_read = 0
    for each in given:
        name = each.get("name")
        if type(name) is not str or name in named:
            raise BadRequest(f"an input has no name of its own: {name!r}: {signature}")
        spec = specs.get(name)
        if spec is None:
            signature.check_names({str(other.get("name")): other for other in given})
            continue
        shape = _shape(each, spec, signature)
        parameters = parameters_of(each)
        if parameters:
            check_parameters(f"input {name!r}", parameters)
        size = parameters.get("binary_data_size")
        if size is None:
            lists_read += 1
            named[name] = (
                shape,
                _read_list(each.get("data"), infer_body.lists, spec, signature, shape),
            )
            continue
        _check_size(each, size, len(infer_body.rest) - at)
        named[name] = shape, raw_tensors.read(infer_body.rest[at : at + size], spec, shape)
        at += size
    if lists_read < len(infer_body.lists) or at != len(infer_body.rest):
        _check_rest(infer_body, lists_read, at)
    signature.check_names(named)
    ordered = [named[spec.name] for spec in signature.inputs]
    return tuple(shape for shape, _ in ordered), [given for _, given in ordered]


def _check_rest(infer_body: InferBody, lists_read: int, bytes_read: int) -> None:
    """Refuse the parts of a body that belong to no input, unless these are JSON that was passed
    over: the same key twice, or elsewhere.
    """
    for text in infer_body.lists if lists_read < len(infer_body.lists) else ():
        _list_of(text)
    if bytes_read != len(infer_body.rest):
        raise BadRequest(
            f"{len(infer_body.rest) - bytes_read} bytes after the tensors belong to none"
        )


def _check_size(each: dict[str, Any], size: Any, left: int) -> None:
    """Refuse an input that has not so many bytes behind the document."""
    if type(size) is not int or not 0 <= size <= left or "data" in each:
        raise BadRequest(
            f"input {each['name']!r} has binary_data_size {size!r}; {left} bytes are left"
        )


def _shape(each: dict[str, Any], spec: TensorSpec, signature: Signature) -> Shape:
    shape, datatype = each.get("shape"), each.get("datatype")
    if datatype != spec.dtype.oip:
        known = dtypes.BY_OIP.get(datatype) if type(datatype) is str else None
        datatype_text = f"{known}" if known is not None else f"of datatype {datatype!r}"
        raise BadRequest(
            f"input {spec.name!r} is {datatype_text}, not {spec.dtype} "
            f"({spec.dtype.oip}): {signature}"
        )
    if type(shape) is not list or not all(
        type(size) is int and 0 <= size < 1 << 40 for size in shape
    ):
        raise BadRequest(
            f"input {spec.name!r} has shape {shape!r}: sizes are 0 or more: {signature}"
        )
    signature.check_tensor(spec, spec.dtype, shape)
    return tuple(shape)


def _read_list(
    data: Any, lists: list[bytes], spec: TensorSpec, signature: Signature, shape: Shape
) -> Values:
    """Values in JSON: one after the other, or in lists as the shape has them."""
    count = 1
    for size in shape:
        count *= size
    where = f"input {spec.name!r}"
    if lists and type(data) is int:
        flat = _numbers.flat(lists[data], spec.dtype) if data < len(lists) else None
        if flat is not None:
            _check_count(flat.size, count, shape, spec, signature)
            return flat.reshape(shape)
        data = _list_of(lists[data])
    if type(data) is not list:
        raise BadRequest(f"{where} has no list of data and no binary_data_size: {signature}")
    data_shape, values = json_documents.tensor(data, spec, signature, where)
    if data_shape != shape:
        size = 1
        for each in data_shape:
            size *= each
        _check_count(size, count, shape, spec, signature)
        if len(data_shape) != 1:
            raise BadRequest(
                f"{where} has data of shape {list(data_shape)}, "
                f"its shape is {list(shape)}: {signature}"
            )
    return json_documents.shape_values(shape, values, spec.dtype)


def _list_of(text: bytes) -> Any:
    return json_documents.document(b'{"data":%b}' % text)["data"]


def _check_count(
    size: int, count: int, shape: Shape, spec: TensorSpec, signature: Signature
) -> None:
    if size != count:
        raise BadRequest(
            f"input {spec.name!r} has {size} values, shape {list(shape)} takes {count}: {signature}"
        )


def parameters_of(each: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, an input or an output.

    Raises:
        BadRequest: where they are no object.
    """
    parameters = each.get("parameters", _NO_PARAMETERS)
    if parameters is None:
        return _NO_PARAMETERS
    if type(parameters) is not dict:
        raise BadRequest("'parameters' is not an object")
    return parameters


def outputs(signature: Signature, infer_body: InferBody) -> tuple[Signature, list[RequestedOutput]]:
    """What is wanted back, and the signature that gives it.

    Raises:
        BadRequest: for an output that there is not.
    """
    usual = parameters_of(infer_body.document).get("binary_data_output", False) is True
    given = infer_body.document.get("outputs") or []
    if type(given) is not list or not all(
        type(each) is dict and type(each.get("name")) is str for each in given
    ):
        raise BadRequest(f"'outputs' is not a list of objects with names: {signature}")
    ways = []
    for each in given:
        parameters = parameters_of(each)
        if parameters:
            check_parameters(f"output {each['name']!r}", parameters)
        ways.append(parameters.get("binary_data", usual) is True)
    names = [each["name"] for each in given]
    signature = signature.naming(names)
    places = signature.output_indices(names)
    return signature, [
        RequestedOutput(place, way)
        for place, way in zip(places, ways or [usual] * len(places), strict=True)
    ]

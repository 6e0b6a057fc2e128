"""Calls to a model, ready to be pasted: curl, grpcurl and Python, with values that its signature
takes.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloud_ml.models.services.service import ModelSignature, ModelTensor, Service

_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "string": "string_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "float16": "half_val",
    "bfloat16": "half_val",
}
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF"}
_MOST_VALUES = 32
"""More than these nobody pastes into a shell."""


def calls(service: Service, signature: ModelSignature) -> list[tuple[str, str]]:
    """Names of tools, and what to type."""
    if any(_count(one) > _MOST_VALUES for one in signature.inputs):
        return _from_files(service, signature)
    columns = {one.name: _nest_values(_value(one), _shape(one)) for one in signature.inputs}
    body, message = (
        _quote_json(_request_document(signature, columns)),
        _quote_json(_message(service, signature)),
    )
    plain = "" if service.tls else "-plaintext "
    return [
        ("curl", f"curl {_open(service)}{_url(service)} -d {body}"),
        ("grpcurl", f"grpcurl {plain}{_grpc_open(service)}-d {message} {_method(service)}"),
        ("Python", _python(service, columns, signature)),
    ]  # fmt: skip


def _from_files(service: Service, signature: ModelSignature) -> list[tuple[str, str]]:
    shapes = ", ".join(f'"{one.name}": [… {_shape(one)}]' for one in signature.inputs)
    return [
        (
            "curl",
            f'curl {_open(service)}{_url(service)} -d @request.json      # {{"inputs": '
            f"{{{shapes}}}}}",
        ),
        (
            "cloudml",
            f"cloudml models predict {service.name} {service.version} -d data.json      # "
            f"{{{shapes}}}",
        ),
    ]


def _request_document(signature: ModelSignature, columns: dict[str, Any]) -> Any:
    named = {} if signature.name == "serving_default" else {"signature_name": signature.name}
    return {**named, "inputs": columns}


def _python(service: Service, columns: dict[str, Any], signature: ModelSignature) -> str:
    more = "" if signature.name == "serving_default" else f", signature={signature.name!r}"
    return (
        "from cloud_ml.client import CloudMlClient; "
        f"print(CloudMlClient().predict({service.name!r}, {service.version!r}, {columns!r}{more}))"
    )


def _message(service: Service, signature: ModelSignature) -> Any:
    spec = {"name": service.name}
    if signature.name != "serving_default":
        spec["signature_name"] = signature.name
    return {"model_spec": spec, "inputs": {one.name: _tensor(one) for one in signature.inputs}}


def _tensor(tensor: ModelTensor) -> dict[str, Any]:
    value = _value(tensor)
    if tensor.dtype == "string":
        value = "dGV4dA=="  # bytes are base64 in JSON: "text"
    elif tensor.dtype in ("float16", "bfloat16"):
        value = 0x3C00 if tensor.dtype == "float16" else 0x3F80  # their bits: 1.0
    return {
        "dtype": f"DT_{_NAMES.get(tensor.dtype, tensor.dtype.upper())}",
        "tensor_shape": {"dim": [{"size": size} for size in _shape(tensor)]},
        _FIELDS.get(tensor.dtype, "int_val"): [value] * _count(tensor),
    }


def _url(service: Service) -> str:
    return f"{service.url}/v1/models/{service.name}:predict"


def _method(service: Service) -> str:
    return f"{service.address} tensorflow.serving.PredictionService/Predict"


def _open(service: Service) -> str:
    return "" if _is_open(service) else '-H "Authorization: Bearer $(cloudml models token)" '


def _grpc_open(service: Service) -> str:
    return "" if _is_open(service) else '-H "authorization: Bearer $(cloudml models token)" '


def _is_open(service: Service) -> bool:
    return service.spec.get("access") == "open"


def _value(tensor: ModelTensor) -> Any:
    if tensor.dtype.startswith(("float", "bfloat")):
        return 1.0
    return {"string": "text", "bool": True}.get(tensor.dtype, 1)


def _shape(tensor: ModelTensor) -> list[int]:
    return [1 if size < 0 else size for size in tensor.shape or (1,)] if tensor.shape != [] else []


def _count(tensor: ModelTensor) -> int:
    return math.prod(_shape(tensor))


def _nest_values(value: Any, shape: list[int]) -> Any:
    return [_nest_values(value, shape[1:])] * shape[0] if shape else value


def _quote_json(document: Any) -> str:
    return "'" + json.dumps(document).replace("'", "'\\''") + "'"

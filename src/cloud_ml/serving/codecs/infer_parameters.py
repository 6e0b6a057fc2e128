"""Parameters of the Open Inference Protocol: the same meaning over gRPC and HTTP."""

import time
from collections.abc import Mapping
from typing import Any

from cloud_ml.serving.errors import BadRequest, Unsupported

NOT_OFFERED = (
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "shared_memory_region",
    "classification",
)
"""Parameters of a request, an input or an output that would change the answer: refused over gRPC
and HTTP.
"""
_LARGEST = 1 << 63


def values_of(parameters: Any) -> dict[str, Any]:
    """The values of a map of ``InferParameter`` by name."""
    return {
        name: getattr(parameter, parameter.WhichOneof("parameter_choice") or "int64_param")
        for name, parameter in parameters.items()
    }


def check_parameters(where: str, parameters: Mapping[str, Any]) -> None:
    """Refuse what would change the answer and is not offered here.

    Raises:
        Unsupported: with the name of the parameter.
    """
    for name in NOT_OFFERED:
        if parameters.get(name):
            raise Unsupported(f"parameter {name!r} of {where} is not offered by this server")


def timeout_of(parameters: Mapping[str, Any]) -> float:
    """Seconds that the caller waits; 0 where it does not say so.

    A ``priority`` must be a number and has no effect, as in Triton for a model without levels of
    priority.

    Raises:
        BadRequest: for what is no number.
    """
    _number(parameters, "priority", "a priority is a whole number, 0 or more")
    return (
        _number(parameters, "timeout", "a timeout is a whole number of microseconds, 0 or more")
        / 1e6
    )


def signature_name_of(parameters: Mapping[str, Any]) -> str:
    """The signature that is asked for; empty for the default one.

    Raises:
        BadRequest: for what is no string.
    """
    value = parameters.get("signature_name")
    if value is None:
        return ""
    if type(value) is not str:
        raise BadRequest(f"parameter 'signature_name' of the request is {value!r}; it is a string")
    return value


def earlier(deadline: float, timeout_s: float) -> float:
    """The end of a timeout that begins now, or the deadline where that is earlier; 0 is none.

    Both are in the time of the event loop, which is the monotonic clock.
    """
    end = time.monotonic() + timeout_s
    return min(deadline, end) if deadline else end


def _number(parameters: Mapping[str, Any], name: str, allowed: str) -> int:
    value = parameters.get(name)
    if value is None:
        return 0
    # With `isinstance` a JSON `true` would count as 1.
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise BadRequest(f"parameter {name!r} of the request is {str(value)[:50]!r}; {allowed}")
    return value

"""Arrays of NumPy, pandas, PyTorch and others as inputs of a model. None of these libraries is
imported.
"""

from __future__ import annotations

import base64
from typing import Any, Protocol

from cloud_ml.errors import InvalidRequest

_ALLOWED = "numbers, strings, booleans, bytes, lists of them, or an array such as NumPy's"


class SupportsArray(Protocol):
    """What NumPy can read: its own arrays, data frames, tensors."""

    def __array__(self) -> Any:
        """The same as an array of NumPy."""


def is_rows(inputs: Any) -> bool:
    """Whether inputs are rows (a list, a tuple or an array) and not columns by name."""
    return (
        isinstance(inputs, (list, tuple))
        or hasattr(inputs, "__array__")
        or hasattr(inputs, "tolist")
    )


def as_array(value: Any) -> Any:
    """The value as NumPy has it, or ``None`` where it is no array or cannot be read in place,
    such as on a GPU.
    """
    if isinstance(value, type) or not hasattr(value, "__array__"):
        return None
    try:
        return value.__array__()
    except Exception:  # PyTorch raises TypeError or RuntimeError, others have errors of their own
        return None


def to_plain(value: Any) -> Any:
    """Arrays, tuples and scalars of NumPy as lists and numbers; anything else stays as it is."""
    if isinstance(value, (list, tuple)):
        return [to_plain(one) for one in value]
    if isinstance(value, (str, int, float, dict, type)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return {"b64": base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    array = as_array(value)
    return value if array is None else to_plain(array.tolist())


def for_json(value: Any) -> Any:
    """The ``default`` of ``json.dumps``.

    Raises:
        InvalidRequest: JSON has nothing for such a value.
    """
    plain = to_plain(value)
    if plain is value:
        what = type(value).__name__
        raise InvalidRequest(
            f"the inputs contain a value of type {what}", field="inputs", allowed=_ALLOWED
        )
    return plain

"""``signature.json`` of a model whose file stores no signature, from words such as
``x:float32[?,8]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse

FILE = "signature.json"
TYPES = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "string",
)
_SHORT = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int64",
    "long": "int64",
    "str": "string",
}
_TENSOR = re.compile(
    r"(?P<name>[^:\[\]]{1,255}):(?P<type>[A-Za-z0-9]{1,20})(?:\[(?P<shape>[^\[\]]{0,200})\])?"
)
_MOST_SIZE = 2**31 - 1
_USUAL = "NAME:TYPE[SIZES], such as x:float32[?,8]; ? is any size"


def signature_document(inputs: Sequence[str], outputs: Sequence[str] = ()) -> dict[str, Any]:
    """What belongs into the file. Without ``outputs`` the model server finds them out by a run.

    Raises:
        InvalidRequest: A word is wrong, or there is no input.
    """
    if not inputs:
        raise InvalidRequest("input is missing", field="input", allowed=_USUAL)
    found: dict[str, Any] = {"inputs": _tensors("input", inputs)}
    if outputs:
        found["outputs"] = _tensors("output", outputs)
    return found


def _tensors(field: str, words: Sequence[str]) -> list[dict[str, Any]]:
    found = [parse_tensor(field, word) for word in words]
    names = [each["name"] for each in found]
    for word, name in zip(words, names, strict=True):
        if names.count(name) > 1:
            raise refuse(field, word, "a name that is given once")
    return found


def parse_tensor(field: str, word: str) -> dict[str, Any]:
    """A tensor as ``signature.json`` has it. Sizes that are left out altogether make a single
    number.

    Raises:
        InvalidRequest: The word is wrong.
    """
    match = _TENSOR.fullmatch(word)
    if match is None or not match["name"].isprintable() or not match["name"].strip():
        raise refuse(field, word[:300], _USUAL)
    dtype = _SHORT.get(match["type"], match["type"])
    if dtype not in TYPES:
        raise refuse(field, word, f"a type of {', '.join(TYPES)}")
    shape = (
        [_size(field, word, each.strip()) for each in (match["shape"] or "").split(",")]
        if match["shape"]
        else []
    )
    return {"name": match["name"], "dtype": dtype, "shape": shape}


def _size(field: str, word: str, text: str) -> int:
    if text in ("?", "-1", "None"):
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _MOST_SIZE):
        raise refuse(field, word, f"sizes from 0 to {_MOST_SIZE}, or ? for any")
    return int(text)

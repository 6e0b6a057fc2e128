"""Studies in the documents of other tools: what is common to all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_ml.models.common import refuse
from cloud_ml.models.studies.study import NewStudy

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class ForeignStudy:
    """A study that another tool's document asks for.

    Attributes:
        study: The study, with a train job of ours.
        notes: Sentences about what the document says and this server does not do.
    """

    study: NewStudy
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ParameterFieldNames:
    """How a document calls the parts of a parameter.

    Attributes:
        kind: The field of its type.
        range: The field of its ``min``, ``max`` and ``list``.
    """

    kind: str
    range: str


KATIB = ParameterFieldNames("parameterType", "feasibleSpace")
ORIGINAL = ParameterFieldNames("parametertype", "feasible")
_KINDS = ("double", "int", "categorical", "discrete")
_SCALES = {"uniform": "linear", "logUniform": "log"}
_IN_RANGE = ("min", "max", "list", "step", "distribution")


def space_of(path: str, configs: Any, words: ParameterFieldNames) -> dict[str, Any]:
    """The space of a list of parameters as Katib writes them.

    Raises:
        InvalidRequest: Names the parameter by its place, and what is allowed.
    """
    if not isinstance(configs, list):
        raise refuse(path, configs, "a list of parameters")
    found: dict[str, Any] = {}
    for number, config in enumerate(configs):
        where = f"{path}[{number}]"
        if not isinstance(config, Mapping):
            raise refuse(where, config, f"an object of name, {words.kind} and {words.range}")
        name = config.get("name")
        plain = name.lstrip("-") if isinstance(name, str) else ""
        if not plain or plain in found:
            raise refuse(f"{where}.name", name, "a name that no other parameter has")
        found[plain] = _parameter(where, config, words)
    return found


def _parameter(where: str, config: Mapping[str, Any], words: ParameterFieldNames) -> Any:
    for key in config:
        if key not in ("name", words.kind, words.range):
            raise refuse(f"{where}.{key}", config[key], f"name, {words.kind} and {words.range}")
    kind, place = config.get(words.kind), f"{where}.{words.range}"
    if kind not in _KINDS:
        raise refuse(f"{where}.{words.kind}", kind, ", ".join(_KINDS))
    feasible = config.get(words.range)
    if not isinstance(feasible, Mapping):
        raise refuse(place, feasible, "an object of min and max, or of list")
    for key, value in feasible.items():
        if key not in _IN_RANGE:
            raise refuse(f"{place}.{key}", value, ", ".join(_IN_RANGE))
    if kind in ("categorical", "discrete"):
        return _values(f"{place}.list", feasible.get("list"), numbers=kind == "discrete")
    bounds: dict[str, Any] = {"type": kind} if kind == "int" else {}
    for end in ("min", "max", "step"):
        if end != "step" or feasible.get(end) not in (None, ""):
            bounds[end] = number_of(f"{place}.{end}", feasible.get(end))
    scale = feasible.get("distribution") or "uniform"
    if scale not in _SCALES:
        raise refuse(f"{place}.distribution", scale, ", ".join(_SCALES))
    return bounds if scale == "uniform" else bounds | {"scale": _SCALES[scale]}


def _values(path: str, values: Any, *, numbers: bool) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise refuse(path, values, "a list of values")
    if not numbers:
        return list(values)
    return [number_of(f"{path}[{at}]", value) for at, value in enumerate(values)]


def number_of(path: str, value: Any) -> int | float:
    """A number, also as a text: Katib quotes all of them.

    Raises:
        InvalidRequest: It is none.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        raise refuse(path, value, "a number")
    return float(text)


def count_of(path: str, value: Any) -> int:
    """A whole number, also as a text.

    Raises:
        InvalidRequest: It is none.
    """
    found = number_of(path, value)
    if isinstance(found, float):
        raise refuse(path, value, "a whole number")
    return found


def goal_of(path: str, value: Any) -> str:
    """``min`` or ``max``.

    Raises:
        InvalidRequest: It is neither ``minimize`` nor ``maximize``.
    """
    goal = value.lower() if isinstance(value, str) else ""
    if goal not in ("minimize", "maximize", "min", "max"):
        raise refuse(path, value, "minimize or maximize")
    return goal[:3]


def text_of(path: str, value: Any) -> str:
    """A text that is not empty.

    Raises:
        InvalidRequest: It is none.
    """
    if not isinstance(value, str) or not value:
        raise refuse(path, value, "a text")
    return value


def object_of(path: str, value: Any) -> Mapping[str, Any]:
    """An object.

    Raises:
        InvalidRequest: It is none.
    """
    if not isinstance(value, Mapping):
        raise refuse(path, value, "an object")
    return value

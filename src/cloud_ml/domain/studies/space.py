"""What a study searches: the parameters of its trials and their ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from cloud_ml.domain.studies.conditions import Condition, with_conditions
from cloud_ml.domain.studies.values import NAME, Value, check_value, number_of, same
from cloud_ml.models.common import refuse

_ALIASES = {
    "low": "min", "lower": "min", "high": "max", "upper": "max", "choices": "values",
    "list": "values", "distribution": "scale", "log": "scale: log", "q": "step", "parameterType": "type",
    "when": "active_if", "condition": "active_if", "conditions": "active_if",
    "depends_on": "active_if", "const": "value", "constant": "value",
}  # fmt: skip
"""Words of Optuna, Katib and Weights & Biases, and ours."""
_MOST_PARAMETERS, _MOST_VALUES = 100, 1000
_LARGEST_INT = 2**53
_FORM = (
    "a list of values, {value} of a constant, or {min, max, type: double or int, "
    "scale: linear, log or reverse-log, step}"
)
_TYPES = {
    "double": "double", "float": "double", "real": "double", "int": "int", "integer": "int",
}  # fmt: skip
_CATEGORICAL = "categorical"
_KEYS = ("type", "min", "max", "step", "scale", "values", "value", "active_if")


class Scale(StrEnum):
    """How the values of a range are spread."""

    LINEAR = "linear"
    LOG = "log"
    REVERSE_LOG = "reverse-log"
    """Of values from 0 to below 1: what is missing to 1 is spread as by ``log``. Half of a momentum
    from 0.9 to 0.999 is above 0.99. SageMaker's ``ReverseLogarithmic`` is the same.
    """


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter: either a list of ``values``, or a range.

    Attributes:
        name: It is the flag of the trial's argument, too: ``--name=value``.
        values: All values, in the order in which a grid takes them; empty for a range.
        low: The least value of a range.
        high: The largest.
        whole: Whether the values of a range are whole numbers.
        scale: Whether values, or logarithms of them, are spread evenly.
        step: The distance of two values; 0 for none.
        active_if: All of these hold where a trial has the parameter.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: Scale = Scale.LINEAR
    step: float = 0.0
    active_if: tuple[Condition, ...] = ()

    def document(self) -> Any:
        """The parameter as it may be asked for."""
        if not self.active_if:
            return list(self.values) if self.values else self._range()
        conditions = {
            one.name: one.values[0] if len(one.values) == 1 else list(one.values)
            for one in self.active_if
        }
        own = {"values": list(self.values)} if self.values else self._range()
        return own | {"active_if": conditions}

    def _range(self) -> dict[str, Any]:
        ends: dict[str, Any] = {"min": self.low, "max": self.high}
        if self.whole:
            ends = {"min": round(self.low), "max": round(self.high), "type": "int"}
        if self.scale is not Scale.LINEAR:
            ends["scale"] = str(self.scale)
        return ends | ({"step": self.step} if self.step else {})

    @property
    def finite(self) -> bool:
        """Whether a grid can take all values."""
        return bool(self.values or self.whole or self.step)

    @property
    def constant(self) -> bool:
        """Whether there is nothing to choose."""
        return self.finite and self.size == 1

    @property
    def size(self) -> int:
        """How many values a finite parameter has."""
        return len(self.values) or self._steps() + 1

    def value_at(self, number: int) -> Value:
        """The value of that number, from 0, of a finite parameter."""
        found: Value = self.values[number] if self.values else self._value(number)
        return found

    def sample(self, luck: random.Random) -> Value:
        """A value by chance."""
        if self.values:
            chosen: Value = luck.choice(self.values)
            return chosen
        if self.scale is not Scale.LINEAR:
            return self.at(luck.random())
        if self.finite:
            return self._value(luck.randint(0, self._steps()))
        return luck.uniform(self.low, self.high)

    def at(self, share: float) -> Value:
        """The value that stands at a share, from 0 to 1, of the whole parameter."""
        share = min(max(share, 0.0), 1.0)
        if self.scale is not Scale.LINEAR:
            low, high = self._log_ends()
            drawn = self._number_at(low + share * (high - low))
            return self._rounded(min(max(drawn, self.low), self.high))
        if self.finite:
            return self.value_at(min(int(share * self.size), self.size - 1))
        return self._rounded(self.low + share * (self.high - self.low))

    def share_of(self, value: Any) -> float:
        """Where a value stands, from 0 to 1: what ``at`` takes. One that is not of the parameter,
        as users may name, is at the nearest end.
        """
        if self.values:
            alike = (n for n, one in enumerate(self.values) if same(one, value))
            return (next(alike, 0) + 0.5) / self.size
        number = min(max(float(value), self.low), self.high)
        if self.scale is not Scale.LINEAR:
            low, high = self._log_ends()
            return (self._logarithm_of(number) - low) / (high - low)
        if self.finite:
            return (self.number_of(number) + 0.5) / self.size
        return (number - self.low) / (self.high - self.low)

    def has(self, value: Any) -> bool:
        """Whether a value is one of the parameter."""
        if self.values:
            return any(same(one, value) for one in self.values)
        if isinstance(value, (bool, str)) or not self.low <= value <= self.high:
            return False
        if self.scale is not Scale.LINEAR or not self.finite:
            return not self.whole or value == round(value)
        return math.isclose(float(self.value_at(self.number_of(value))), value, abs_tol=1e-12)

    def number_of(self, value: float) -> int:
        """The number of the nearest value in a range of finitely many."""
        return min(round((value - self.low) / (self.step or 1)), self.size - 1)

    @property
    def ordered(self) -> bool:
        """Whether neighbours in the parameter are alike: all but lists of anything but numbers."""
        if not self.values:
            return True
        if any(isinstance(value, (str, bool)) for value in self.values):
            return False
        return len(self.values) > 2 and list(self.values) == sorted(self.values)

    def _log_ends(self) -> tuple[float, float]:
        """The ends in logarithms; of whole numbers each takes as much as those in between."""
        half = 0.5 if self.whole else 0.0
        return self._logarithm_of(self.low - half), self._logarithm_of(self.high + half)

    def _logarithm_of(self, number: float) -> float:
        """What is spread evenly on a scale that is not linear; it grows with the number."""
        # log1p and expm1, as 1 - number loses the digits of a number near 0.
        return -math.log1p(-number) if self.scale is Scale.REVERSE_LOG else math.log(number)

    def _number_at(self, logarithm: float) -> float:
        """The number that has this logarithm."""
        reverse = self.scale is Scale.REVERSE_LOG
        return -math.expm1(-logarithm) if reverse else math.exp(logarithm)

    def _value(self, number: int) -> Value:
        return self._rounded(self.low + number * (self.step or 1))

    def _steps(self) -> int:
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9)

    def _rounded(self, value: float) -> Value:
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.15g}"), self.low), self.high)


def parse_space(space: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of a document: a list of values, a constant, or a range, by name. Each stands
    behind those that its conditions name.

    Raises:
        InvalidRequest: Names the parameter, what is wrong with it, and what is allowed.
    """
    if len(space) > _MOST_PARAMETERS:
        raise refuse("space", len(space), f"at most {_MOST_PARAMETERS} parameters")
    conditions = {
        name: document["active_if"]
        for name, document in space.items()
        if isinstance(document, Mapping) and document.get("active_if") is not None
    }
    return with_conditions([_parse(name, document) for name, document in space.items()], conditions)


def _parse(name: str, document: Any) -> Parameter:
    field = f"space.{name}"
    if not NAME.fullmatch(name):
        raise refuse("space", name, "names of letters, digits, _, . and -, at most 100")
    if isinstance(document, list):
        return Parameter(name=name, values=_checked_values(field, document))
    if not isinstance(document, Mapping):
        raise refuse(field, document, _FORM)
    for key in document:
        if key not in _KEYS:
            near = get_close_matches(str(key), _KEYS, n=1)
            suggestion = _ALIASES.get(str(key)) or (near[0] if near else "")
            allowed = (
                f"no such field; did you mean {suggestion}?"
                if suggestion
                else f"{', '.join(_KEYS)}"
            )
            raise refuse(f"{field}.{key}", document[key], allowed)
    own = {key: value for key, value in document.items() if key != "active_if"}
    if "values" in own and own.get("type") == _CATEGORICAL:
        del own["type"]  # as Katib and Optuna call a list of values
    _check_alone(field, own)
    if "value" in own:
        check_value(f"{field}.value", own["value"])
        return Parameter(name=name, values=(own["value"],))
    if "values" in own:
        return Parameter(name=name, values=_checked_values(f"{field}.values", own["values"]))
    return _parse_range(name, field, own)


def _check_alone(field: str, own: Mapping[str, Any]) -> None:
    """Refuse what stands beside a list of values or a constant.

    Raises:
        InvalidRequest: Names the key that is too much.
    """
    kind = next((key for key in ("values", "value") if key in own), None)
    other = next((key for key in own if key != kind), None)
    if kind is None or other is None:
        return
    if other in ("value", "values", "min", "max"):
        raise refuse(field, dict(own), "either value, or values, or min and max")
    allowed = f"no {other} beside {kind}; leave it out"
    if other == "type" and kind == "values":
        allowed = f"{_CATEGORICAL} beside values, or no type"
    raise refuse(f"{field}.{other}", own[other], allowed)


def _parse_range(name: str, field: str, document: Mapping[str, Any]) -> Parameter:
    low, high = (number_of(f"{field}.{end}", document.get(end)) for end in ("min", "max"))
    if not low < high:
        raise refuse(f"{field}.max", document["max"], f"more than min, which is {low:g}")
    if not math.isfinite(high - low):
        raise refuse(f"{field}.max", document["max"], "a narrower range: numbers end at 1.8e308")
    whole = _is_whole(field, document, low, high)
    scale = document.get("scale", Scale.LINEAR)
    if scale not in list(Scale):
        raise refuse(f"{field}.scale", scale, "linear, log or reverse-log")
    _check_scale(field, (low, high), Scale(scale))
    step = 0.0
    if document.get("step") is not None:
        step = number_of(f"{field}.step", document["step"])
        if not 0 < step <= high - low or (whole and step % 1):
            raise refuse(f"{field}.step", document["step"], f"more than 0, at most {high - low:g}")
        if scale != Scale.LINEAR:
            raise refuse(f"{field}.step", document["step"], f"no step, since the scale is {scale}")
    if step and (high - low) / step > _LARGEST_INT:
        raise refuse(f"{field}.step", document["step"], "a larger step")
    return Parameter(name=name, low=low, high=high, whole=whole, scale=Scale(scale), step=step)


def _check_scale(field: str, ends: tuple[float, float], scale: Scale) -> None:
    """Check that all values of a range have logarithms."""
    low, high = ends
    if scale is Scale.LOG and low <= 0:
        raise refuse(f"{field}.min", low, "more than 0, since the scale is log")
    if scale is Scale.REVERSE_LOG and low < 0:
        raise refuse(f"{field}.min", low, "0 or more, since the scale is reverse-log")
    if scale is Scale.REVERSE_LOG and high >= 1:
        raise refuse(f"{field}.max", high, "less than 1, since the scale is reverse-log")


def _is_whole(field: str, document: Mapping[str, Any], low: float, high: float) -> bool:
    """Whether a range is one of whole numbers. Only ``type`` says so: 0 to 1 may be a share."""
    ends = [low, high]
    kind = _TYPES.get(str(document.get("type", "double")))
    if kind is None:
        raise refuse(f"{field}.type", document["type"], "double or int; or write values: a list")
    if kind == "int" and any(end % 1 or abs(end) > _LARGEST_INT for end in ends):
        raise refuse(field, ends, "whole numbers up to 2^53, since the type is int")
    return bool(kind == "int")


def _checked_values(field: str, values: Any) -> tuple[Value, ...]:
    if not isinstance(values, list) or not 1 <= len(values) <= _MOST_VALUES:
        raise refuse(field, values, f"a list of 1 to {_MOST_VALUES} values")
    known: set[tuple[type, Value]] = set()
    for number, value in enumerate(values):
        check_value(f"{field}[{number}]", value)
        if (type(value), value) in known:
            raise refuse(f"{field}[{number}]", value, "each value once")
        known.add((type(value), value))
    return tuple(values)

"""Distributions of Optuna: where the value of a parameter is from. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_ml.domain.studies.space import Parameter, Scale
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import is_unicode, refuse

_FLOATS = {"FloatDistribution", "UniformDistribution", "LogUniformDistribution"}
_FLOATS |= {"DiscreteUniformDistribution"}
_INTS = {"IntDistribution", "IntUniformDistribution", "IntLogUniformDistribution"}
_CHOICES = {"CategoricalDistribution"}
_LONGEST = 65_536


@dataclass(frozen=True)
class Distribution:
    """A distribution, and the JSON that says so.

    ``kind`` is ``float``, ``int`` or ``choices``.
    """

    text: str
    kind: str
    attributes: Mapping[str, Any]

    @property
    def choices(self) -> Sequence[Any]:
        """The values of a categorical one."""
        return list(self.attributes.get("choices", ()))

    @property
    def log(self) -> bool:
        """Whether its scale is logarithmic."""
        return bool(self.attributes.get("log"))

    def external(self, internal: float) -> Any:
        """The value that users see.

        Raises:
            InvalidRequest: It is none of the distribution.
        """
        if not math.isfinite(internal):
            raise refuse("param_value_internal", internal, "a number")
        if self.kind == "float":
            return internal
        if self.kind == "int":
            return int(internal)
        choices = self.choices
        if not 0 <= internal < len(choices):
            raise refuse("param_value_internal", internal, f"0 to {len(choices) - 1}")
        return _storable(choices[int(internal)])

    def shown(self) -> Any:
        """The parameter as a space of ours has it."""
        if self.kind == "choices":
            return list(map(_storable, self.choices))
        shown = {"min": self.attributes.get("low"), "max": self.attributes.get("high")}
        shown |= {"type": "int"} if self.kind == "int" else {}
        shown |= {"scale": "log"} if self.log else {}
        step = self.attributes.get("step")
        return shown | ({"step": step} if step and (self.kind, step) != ("int", 1) else {})


def parse_distribution(text: str) -> Distribution:
    """Read a distribution.

    Raises:
        InvalidRequest: It is none of Optuna's.
    """
    if len(text) > _LONGEST:
        raise refuse("distribution", f"of {len(text)} characters", f"at most {_LONGEST}")
    name, attributes = _name_and_attributes(text)
    if name in _CHOICES:
        _check_choices(text, attributes.get("choices"))
        return Distribution(text, "choices", attributes)
    if name not in _FLOATS | _INTS:
        raise refuse("distribution", name[:100], ", ".join(sorted(_FLOATS | _INTS | _CHOICES)))
    _check_range(text, attributes)
    log = "Log" in name or attributes.get("log") is True
    return Distribution(text, "int" if name in _INTS else "float", {**attributes, "log": log})


def _name_and_attributes(text: str) -> tuple[str, dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("attributes"), dict):
        raise refuse("distribution", text[:100], "a distribution of Optuna as JSON")
    return str(found.get("name")), found["attributes"]


def _check_choices(text: str, choices: Any) -> None:
    if not isinstance(choices, list) or not choices:
        raise refuse("distribution", text[:100], "choices that are a list, not empty")
    if any(isinstance(each, (list, dict)) or not _is_text(each) for each in choices):
        raise refuse("distribution", text[:100], "choices that are texts, numbers or null")


def _check_range(text: str, attributes: Mapping[str, Any]) -> None:
    if not all(_is_number(attributes.get(end)) for end in ("low", "high")):
        raise refuse("distribution", text[:100], "low and high that are numbers")
    if attributes.get("step") is not None and not _is_number(attributes["step"]):
        raise refuse("distribution", text[:100], "a step that is a number or null")


def check_compatible(old: Distribution, new: Distribution) -> None:
    """Refuse a distribution that Optuna does not let follow another one of its parameter.

    Raises:
        InvalidRequest: They do not go together.
    """
    if old.kind != new.kind:
        raise InvalidRequest("Cannot set different distribution kind to the same parameter name.")
    if old.log != new.log:
        raise InvalidRequest("Cannot set different log configuration to the same parameter name.")
    if old.kind == "choices" and old.choices != new.choices:
        raise InvalidRequest("CategoricalDistribution does not support dynamic value space.")


def distribution_of(parameter: Parameter) -> str:
    """A parameter of a space of ours as Optuna has it."""
    if parameter.values:
        return _text("CategoricalDistribution", {"choices": list(parameter.values)})
    log = parameter.scale is Scale.LOG
    if parameter.whole:
        step = 1 if log else int(parameter.step or 1)
        low, high = int(parameter.low), int(parameter.high)
        return _text("IntDistribution", {"log": log, "step": step, "low": low, "high": high})
    step_ = parameter.step or None
    ends = {"low": parameter.low, "high": parameter.high}
    return _text("FloatDistribution", {"step": step_, "log": log, **ends})


def internal_of(parameter: Parameter, value: Any) -> float | None:
    """A value of a parameter of ours as Optuna's samplers count it; ``None`` if it is none."""
    if parameter.values:
        for at, each in enumerate(parameter.values):
            if type(each) is type(value) and each == value:
                return float(at)
        return None
    return float(value) if _is_number(value) else None


def _is_text(value: Any) -> bool:
    """Whether a choice, if it is a text, is one of Unicode: JSON can name halves of characters."""
    return not isinstance(value, str) or is_unicode(value)


def _storable(choice: Any) -> Any:
    """A choice as JSON has it, which lacks NaN and infinities: their names."""
    endless = isinstance(choice, float) and not math.isfinite(choice)
    return str(choice) if endless else choice


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _text(name: str, attributes: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "attributes": attributes})

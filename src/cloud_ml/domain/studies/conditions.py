"""Parameters that have a value only where others have certain values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from cloud_ml.domain.studies.values import LONGEST_NAME, Parameters, Value, same
from cloud_ml.models.common import refuse

if TYPE_CHECKING:
    from cloud_ml.domain.studies.space import Parameter

_MOST_VALUES = 1000
"""In all conditions of a space: they are looked at for each trial that is drawn."""
_FORM = "an object of parameters and their values, such as {optimizer: sgd}"


@dataclass(frozen=True)
class Condition:
    """Another parameter has one of these values."""

    name: str
    values: tuple[Any, ...]

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a trial with these parameters is meant."""
        if self.name not in parameters:
            return False
        value = parameters[self.name]
        return any(same(one, value) for one in self.values)


def with_conditions(
    space: Sequence[Parameter], active_if: Mapping[str, Any]
) -> tuple[Parameter, ...]:
    """The parameters with their ``active_if``, each behind those that it names.

    Args:
        space: The parameters without conditions.
        active_if: What ``active_if`` says, by the name of the parameter.

    Raises:
        InvalidRequest: A condition names no other parameter, no value of it, or, through others,
            its own parameter.
    """
    known = {parameter.name: parameter for parameter in space}
    found: dict[str, Parameter] = dict(known)
    count = 0
    for name, conditions in active_if.items():
        field = f"space.{name}.active_if"
        if not isinstance(conditions, Mapping) or not conditions:
            raise refuse(field, conditions, _FORM)
        made = tuple(
            _condition(f"{field}.{str(parent)[:LONGEST_NAME]}", str(parent), values, known)
            for parent, values in conditions.items()
        )
        count += sum(len(one.values) for one in made)
        if count > _MOST_VALUES:
            raise refuse(field, f"{count} values", f"at most {_MOST_VALUES} in the whole space")
        found[name] = replace(known[name], active_if=made)
    return tuple(_parents_first(found))


def _condition(
    field: str, parent: str, active_if: Any, known: Mapping[str, Parameter]
) -> Condition:
    if parent not in known:
        others = ", ".join(sorted(known))[:200]
        near = get_close_matches(parent[:LONGEST_NAME], known, n=1)
        allowed = f"a parameter of the space: {others}"
        raise refuse(field, active_if, allowed, suggestion=near[0] if near else "")
    parameter = known[parent]
    if not parameter.finite:
        allowed = "a parameter with a list of values, whole numbers or a step"
        raise refuse(field, active_if, allowed)
    values = active_if if isinstance(active_if, list) else [active_if]
    if not values or len(values) > _MOST_VALUES:
        raise refuse(field, active_if, f"a value of {parent}, or a list of 1 to {_MOST_VALUES}")
    own = {_key(value): value for value in reversed(parameter.values)}
    return Condition(parent, tuple(_value(field, parameter, own, value) for value in values))


def _value(field: str, parent: Parameter, own: Mapping[Any, Value], value: Any) -> Value:
    """The value of the parent that a condition names."""
    if parent.values:
        found = own.get(_key(value)) if isinstance(value, (str, int, float)) else None
    else:
        found = _of_range(parent, value)
    if found is None:
        allowed = ", ".join(map(str, parent.values)) or f"{parent.low:g} to {parent.high:g}"
        raise refuse(field, value, f"values of {parent.name}: {allowed[:200]}")
    return found


def _key(value: Any) -> tuple[bool, Any]:
    return isinstance(value, bool), value


def _of_range(parent: Parameter, value: Any) -> Value | None:
    """The value of a range that is meant; ``None`` if it has no such value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not parent.low <= value <= parent.high:
        return None
    found = parent.value_at(parent.number_of(value))
    return found if abs(float(found) - value) <= 1e-9 * max(1.0, abs(value)) else None


def _parents_first(space: Mapping[str, Parameter]) -> Iterator[Parameter]:
    """In their order, but each behind the parameters that its conditions name.

    Raises:
        InvalidRequest: Conditions lead in a circle.
    """
    done: set[str] = set()
    path: dict[str, None] = {}

    def place(name: str) -> Iterator[Parameter]:
        if name in done:
            return
        parameter = space[name]
        if name in path:
            circle = " → ".join([*list(path)[list(path).index(name) :], name])
            values = {one.name: list(one.values) for one in parameter.active_if}
            allowed = f"conditions that lead in no circle ({circle[:200]})"
            raise refuse(f"space.{name}.active_if", values, allowed)
        path[name] = None
        for condition in parameter.active_if:
            yield from place(condition.name)
        del path[name]
        done.add(name)
        yield parameter

    for name in space:
        yield from place(name)


def is_active(parameter: Parameter, parameters: Mapping[str, Any]) -> bool:
    """Whether a parameter has a value, where those that it depends on have these."""
    return all(condition.holds(parameters) for condition in parameter.active_if)


def why_inactive(parameter: Parameter, parameters: Mapping[str, Any]) -> str:
    """Which condition does not hold, in words."""
    for condition in parameter.active_if:
        if not condition.holds(parameters):
            allowed = " or ".join(map(str, condition.values))[:200]
            has = "has no value"
            if condition.name in parameters:
                has = f"is {parameters[condition.name]}"[:120]
            return f"{parameter.name} counts only if {condition.name} is {allowed}, and it {has}"
    return ""


def only_active(space: Sequence[Parameter], values: Parameters) -> Parameters:
    """The values of those parameters that are active."""
    found: dict[str, Value] = {}
    for parameter in space:
        if is_active(parameter, found):
            found[parameter.name] = values[parameter.name]
    return found

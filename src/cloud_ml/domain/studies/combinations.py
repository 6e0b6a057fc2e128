"""The combinations of a space whose parameters have finitely many values: what a grid tries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from cloud_ml.domain.studies.conditions import is_active
from cloud_ml.domain.studies.constraints import Constraint, constraints_of
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import Parameters, Value
from cloud_ml.models.common import refuse

_MOST_WORK, _WORK_EACH, _TOGETHER = 20_000, 20, 10
"""So much is done while combinations are looked for, and so much more for each that is found. To put
in a value is 1, and so are so many steps of constraints or values of conditions.
"""


class TooFewFound(Exception):
    """Hardly any combination keeps the constraints."""


def is_finite(space: Sequence[Parameter]) -> bool:
    """Whether there are finitely many combinations."""
    return all(parameter.finite for parameter in space)


def grid_size(space: Sequence[Parameter], most: int, constraints: tuple[str, ...] = ()) -> int:
    """How many trials a grid has. Where that takes to try, they are counted up to ``most``.

    Raises:
        InvalidRequest: A parameter has endlessly many values, or so few of very many combinations
            keep the constraints that they are not found.
    """
    for parameter in space:
        if not parameter.finite:
            raise refuse(
                f"space.{parameter.name}",
                f"{parameter.low:g} to {parameter.high:g}",
                "a list of values, whole numbers, or a step, since the algorithm is grid",
            )
    found = count_combinations(space, most, constraints)
    if found is None:
        allowed = "constraints that more combinations of a grid keep, or another algorithm"
        raise refuse("constraints", list(constraints), allowed)
    return found


def count_combinations(
    space: Sequence[Parameter], most: int, constraints: tuple[str, ...] = ()
) -> int | None:
    """How many combinations a finite space has, where that takes to try counted up to ``most``;
    ``None`` if so many are not found among very many.
    """
    if _is_plain(space, constraints):
        return math.prod(parameter.size for parameter in space)
    try:
        return sum(1 for _ in itertools.islice(combinations(space, constraints), most))
    except TooFewFound:
        return None


def grid_point(
    space: Sequence[Parameter], number: int, constraints: tuple[str, ...] = ()
) -> Parameters:
    """The trial of that number, from 0; the last parameter changes fastest."""
    if not _is_plain(space, constraints):
        return next(itertools.islice(combinations(space, constraints), number, None))
    found: dict[str, Value] = {}
    for parameter in reversed(space):
        number, at = divmod(number, parameter.size)
        found[parameter.name] = parameter.value_at(at)
    return {parameter.name: found[parameter.name] for parameter in space}


def _is_plain(space: Sequence[Parameter], constraints: Sequence[str]) -> bool:
    return not constraints and not any(parameter.active_if for parameter in space)


def combinations(
    space: Sequence[Parameter], constraints: tuple[str, ...] = ()
) -> Iterator[Parameters]:
    """Each combination once, the last parameter changing fastest.

    Raises:
        TooFewFound: So few of very many keep the constraints that it would take too long.
    """
    due = _due(space, constraints)
    work = [_work(parameter, due[place]) for place, parameter in enumerate(space)]
    chosen: dict[str, Value] = {}
    left = _MOST_WORK

    def at(depth: int) -> Iterator[Parameters]:
        nonlocal left
        if depth == len(space):
            left += _WORK_EACH + sum(work)
            yield dict(chosen)
            return
        parameter = space[depth]
        if not is_active(parameter, chosen):
            left -= work[depth]
            if all(constraint.holds(chosen) for constraint in due[depth]):
                yield from at(depth + 1)
            return
        for number in range(parameter.size):
            left -= work[depth]
            if left < 0:
                raise TooFewFound
            chosen[parameter.name] = parameter.value_at(number)
            if all(constraint.holds(chosen) for constraint in due[depth]):
                yield from at(depth + 1)
        # Remove the value: in the next round, this parameter may be inactive.
        chosen.pop(parameter.name, None)

    return at(0)


def _work(parameter: Parameter, due: Sequence[Constraint]) -> int:
    """How much it takes to put in a value: see ``_MOST_WORK``."""
    conditions = sum(len(one.values) for one in parameter.active_if)
    return 1 + (conditions + sum(one.cost for one in due)) // _TOGETHER


def _due(
    space: Sequence[Parameter], constraints: tuple[str, ...]
) -> Sequence[Sequence[Constraint]]:
    """For each parameter the constraints of which it is the last one."""
    places = {parameter.name: place for place, parameter in enumerate(space)}
    due: list[list[Constraint]] = [[] for _ in space]
    for constraint in constraints_of(constraints):
        due[max(places[name] for name in constraint.names)].append(constraint)
    return due

"""Points by chance that keep the constraints of a study, also where few do."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence

from cloud_ml.domain.studies.combinations import TooFewFound, combinations, is_finite
from cloud_ml.domain.studies.conditions import only_active
from cloud_ml.domain.studies.constraints import all_hold, constraints_of
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import Parameters

_WORK, _LEAST_DRAWS = 200_000, 1000
"""So many steps are made to find a first point."""
_DRAWS, _LEAST_OF_COSTLY, _WORK_OF_DRAWS = 100, 10, 10_000
"""So many points are drawn in a row before those near a known one are taken. They are fewer where each
takes many steps: the server itself draws for others, too.
"""
_SHARES = (0.3, 0.03, 3e-3, 3e-4, 3e-5)


def first_point(space: Sequence[Parameter], constraints: tuple[str, ...]) -> Parameters | None:
    """A point that keeps the constraints, the same one each time; ``None`` if none is found."""
    luck = random.Random("a first point")  # noqa: S311 - guards nothing
    for _ in range(max(_LEAST_DRAWS, _WORK // _cost(space, constraints))):
        point = draw_point(space, luck)
        if all_hold(constraints, point):
            return point
    if not is_finite(space):
        return None
    with contextlib.suppress(TooFewFound):
        return next(combinations(space, constraints), None)
    return None


def _cost(space: Sequence[Parameter], constraints: tuple[str, ...]) -> int:
    """The steps that one point takes."""
    return len(space) + sum(constraint.cost for constraint in constraints_of(constraints))


def draw_point(space: Sequence[Parameter], luck: random.Random) -> Parameters:
    """A point by chance, whatever constraints say."""
    return only_active(space, {parameter.name: parameter.sample(luck) for parameter in space})


def feasible_points(
    space: Sequence[Parameter],
    constraints: tuple[str, ...],
    known: Sequence[Parameters],
    luck: random.Random,
) -> Iterator[Parameters]:
    """Points by chance that keep the constraints, without end. Where hardly any does, they lie
    between one of the ``known`` and points that do not.

    Raises:
        ValueError: There is none.
    """
    near = [point for point in known if all_hold(constraints, point)]
    draws = min(_DRAWS, max(_LEAST_OF_COSTLY, _WORK_OF_DRAWS // _cost(space, constraints)))
    while True:
        for _ in range(draws):
            point = draw_point(space, luck)
            if all_hold(constraints, point):
                break
        else:
            if not near:
                first = first_point(space, constraints)
                if first is None:
                    raise ValueError("no point keeps the constraints")
                near = [first]
            point = _point_near(space, constraints, luck.choice(near), luck, draws)
        yield point


def _point_near(
    space: Sequence[Parameter],
    constraints: tuple[str, ...],
    known: Parameters,
    luck: random.Random,
    draws: int,
) -> Parameters:
    """A point on the way from one that keeps the constraints to anywhere."""
    for share in _SHARES:
        for _ in range(draws // len(_SHARES)):
            values = {one.name: one.sample(luck) for one in space}
            for one in space:
                if one.name not in known:
                    continue
                if not one.ordered or luck.random() < 0.5:
                    values[one.name] = known[one.name]
                    continue
                start, end = one.share_of(known[one.name]), one.share_of(values[one.name])
                values[one.name] = one.at(start + share * (end - start))
            point = only_active(space, values)
            if point != known and all_hold(constraints, point):
                return point
    return known

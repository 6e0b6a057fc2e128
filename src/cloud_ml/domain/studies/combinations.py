"""The combinations of a space whose parameters have finitely many values: what a grid tries."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import Parameters, Value
from cloud_ml.models.common import refuse


def grid_size(space: Sequence[Parameter]) -> int:
    """How many trials a grid has.

    Raises:
        InvalidRequest: A parameter has endlessly many values.
    """
    size = 1
    for parameter in space:
        if not parameter.finite:
            raise refuse(
                f"space.{parameter.name}",
                f"{parameter.low:g} to {parameter.high:g}",
                "a list of values, whole numbers, or a step, since the algorithm is grid",
            )
        size *= parameter.size
    return size


def grid_point(space: Sequence[Parameter], number: int) -> Parameters:
    """The trial of that number, from 0; the last parameter changes fastest."""
    found: dict[str, Value] = {}
    for parameter in reversed(space):
        number, at = divmod(number, parameter.size)
        found[parameter.name] = parameter.value_at(at)
    return {parameter.name: found[parameter.name] for parameter in space}

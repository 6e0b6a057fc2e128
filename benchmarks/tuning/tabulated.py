"""Real problems, looked up: the losses that ``table_maker.py`` has found at each point of a grid.
Standard library only: also the peer reads them.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("tables")


class Table:
    """The loss at a point is that of the nearest point of the grid.

    Attributes:
        space: A list of names is a parameter of these names. Numbers are a range, on a logarithmic
            scale if the grid is even on that.
        best: The least loss of the table.
    """

    def __init__(self, axes: Mapping[str, Sequence[Any]], losses: Sequence[float]) -> None:
        self.space = {name: _parameter_of(values) for name, values in axes.items()}
        self.best = min(losses)
        self._finders = {name: _finder_of(values) for name, values in axes.items()}
        self._sizes = [len(values) for values in axes.values()]
        self._losses = losses

    def loss(self, parameters: Mapping[str, Any]) -> float:
        """The loss of the nearest point of the grid."""
        at = 0
        for (name, find), size in zip(self._finders.items(), self._sizes, strict=True):
            at = at * size + find(parameters[name])
        return self._losses[at]


@functools.cache
def read_table(name: str) -> Table:
    """The table of that name."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return Table(document["axes"], document["losses"])


def _parameter_of(values: Sequence[Any]) -> Any:
    if isinstance(values[0], str):
        return list(values)
    whole = {"type": "int"} if all(isinstance(value, int) for value in values) else {}
    scale = {"scale": "log"} if _is_geometric(values) else {}
    return {"min": values[0], "max": values[-1], **whole, **scale}


def _is_geometric(values: Sequence[float]) -> bool:
    return len(values) > 2 and abs(values[1] / values[0] - values[-1] / values[-2]) < 1e-3


def _finder_of(values: Sequence[Any]) -> Callable[[Any], int]:
    """What finds the number of the value of an axis that is nearest."""
    if isinstance(values[0], str):
        return values.index
    bend: Callable[[float], float] = math.log if _is_geometric(values) else float
    bent = [bend(value) for value in values]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(bent)]
    return lambda value: bisect.bisect(middles, bend(value))

"""Problems of two objectives, both to be small. Standard library only: also the peer reads them.

ZDT1 to ZDT3 are those of E. Zitzler, K. Deb and L. Thiele (2000), with six parameters; ``mixed`` has a
list, whole numbers and a condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parameters = Mapping[str, Any]
_COLUMNS = 6


@dataclass(frozen=True)
class FrontProblem:
    """One of them; the hypervolume is that up to ``reference``."""

    name: str
    space: Mapping[str, Any]
    costs: Callable[[Parameters], tuple[float, float]]
    reference: tuple[float, float]


def _zdt(shape: Callable[[float, float], float]) -> Callable[[Parameters], tuple[float, float]]:
    def costs(at: Parameters) -> tuple[float, float]:
        first = at["x0"]
        others = 1 + 9 * sum(at[f"x{n}"] for n in range(1, _COLUMNS)) / (_COLUMNS - 1)
        return first, others * shape(first, others)

    return costs


def _mixed(at: Parameters) -> tuple[float, float]:
    """The error and the time of a made-up network: each optimizer has a rate of its own."""
    middle = {"adam": 0.003, "sgd": 0.1, "rms": 0.01}[at["optimizer"]]
    off = math.log10(at["lr"] / middle) ** 2
    momentum = (at["momentum"] - 0.9) ** 2 if at["optimizer"] == "sgd" else 0.05
    size = at["layers"] * 2 ** at["width"]
    error = 0.05 + 0.1 * off + momentum + 0.6 / math.sqrt(size)
    return error, 0.2 + size / 300 + (0.3 if at["optimizer"] == "adam" else 0.0)


_RANGES = {f"x{number}": {"min": 0.0, "max": 1.0} for number in range(_COLUMNS)}
FRONTS = (
    FrontProblem("zdt1", _RANGES, _zdt(lambda f, g: 1 - math.sqrt(f / g)), (1.1, 6.0)),
    FrontProblem("zdt2", _RANGES, _zdt(lambda f, g: 1 - (f / g) ** 2), (1.1, 6.0)),
    FrontProblem(
        "zdt3",
        _RANGES,
        _zdt(lambda f, g: 1 - math.sqrt(f / g) - f / g * math.sin(10 * math.pi * f)),
        (1.1, 6.0),
    ),
    FrontProblem(
        "mixed",
        {
            "optimizer": ["adam", "sgd", "rms"],
            "lr": {"min": 0.0001, "max": 1.0, "scale": "log"},
            "momentum": {"min": 0.0, "max": 0.99, "active_if": {"optimizer": "sgd"}},
            "layers": {"min": 1, "max": 8, "type": "int"},
            "width": {"min": 2, "max": 7, "type": "int"},
        },
        _mixed,
        (1.5, 4.0),
    ),
)

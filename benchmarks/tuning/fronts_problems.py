"""Problems of several objectives, all to be small. Standard library only: also the peer reads them.

ZDT1 to ZDT3 are those of E. Zitzler, K. Deb and L. Thiele (2000), with six parameters; ``mixed`` has a
list, whole numbers and a condition. DTLZ2 is that of K. Deb et al. (2002) with three objectives and six
parameters. Branin-Currin has the functions of those names, as BoTorch has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Parameters = Mapping[str, Any]
_COLUMNS = 6


@dataclass(frozen=True)
class FrontProblem:
    """One of them; the hypervolume is that up to ``reference``. ``largest`` is the most there is."""

    name: str
    space: Mapping[str, Any]
    costs: Callable[[Parameters], tuple[float, ...]]
    reference: tuple[float, ...]
    largest: float | None = None


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


def _dtlz2(at: Parameters) -> tuple[float, float, float]:
    radius = 1 + sum((at[f"x{n}"] - 0.5) ** 2 for n in range(2, _COLUMNS))
    first, second = at["x0"] * math.pi / 2, at["x1"] * math.pi / 2
    return (
        radius * math.cos(first) * math.cos(second),
        radius * math.cos(first) * math.sin(second),
        radius * math.sin(first),
    )


def _branin_currin(at: Parameters) -> tuple[float, float]:
    x, y = 15 * at["x0"] - 5, 15 * at["x1"]
    bent = y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6
    branin = bent * bent + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    u, v = at["x0"], at["x1"]
    share = 1 - math.exp(-1 / (2 * v)) if v > 0 else 1.0
    above = 2300 * u**3 + 1900 * u * u + 2092 * u + 60
    return branin, share * above / (100 * u**3 + 500 * u * u + 4 * u + 20)


_RANGES = {f"x{number}": {"min": 0.0, "max": 1.0} for number in range(_COLUMNS)}
_PAIR = {name: _RANGES[name] for name in ("x0", "x1")}
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
_ZDT1, _ZDT2, _, _MIXED = FRONTS
VOLUMES = (
    replace(_ZDT1, reference=(1.1, 1.1), largest=1.1**2 - 1 / 3),
    replace(_ZDT2, reference=(1.1, 1.1), largest=1.1**2 - 2 / 3),
    FrontProblem("branin-currin", _PAIR, _branin_currin, (18.0, 6.0), 59.36011874867746),
    replace(_MIXED, largest=5.357102718559346),
    FrontProblem("dtlz2", _RANGES, _dtlz2, (1.1, 1.1, 1.1), 1.1**3 - math.pi / 6),
)
"""Those whose largest hypervolume is known: its reference is a tenth beyond the front, or BoTorch's."""

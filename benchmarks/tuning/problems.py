"""Problems to be tuned, with their best values. Standard library only: also the peer reads them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuning.tabulated import read_table

Parameters = Mapping[str, Any]
_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)
_ALPHA = (1.0, 1.2, 3.0, 3.2)


@dataclass(frozen=True)
class Problem:
    """One of them.

    ``kind`` is its class; ``best`` the least value that there is, without noise; ``noise`` the
    deviation of what a trial sees.
    """

    name: str
    kind: str
    space: Mapping[str, Any]
    cost: Callable[[Parameters], float]
    best: float
    noise: float = 0.0

    def seen(self, parameters: Parameters, luck: random.Random) -> float:
        """What a trial reports."""
        value = self.cost(parameters)
        return value + luck.gauss(0, self.noise) if self.noise else value


def _box(count: int, low: float, high: float) -> Mapping[str, Any]:
    return {f"x{number}": {"min": low, "max": high} for number in range(count)}


def _row(parameters: Parameters) -> list[float]:
    return [float(value) for value in parameters.values()]


def branin(parameters: Parameters) -> float:
    x, y = _row(parameters)
    bent = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bent * bent + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(parameters: Parameters) -> float:
    row, whole = _row(parameters), 0.0
    for alpha, a, p in zip(_ALPHA, _A, _P, strict=True):
        inner = sum(c * (x - q) ** 2 for c, x, q in zip(a, row, p, strict=True))
        whole -= alpha * math.exp(-inner)
    return whole


def rosenbrock(parameters: Parameters) -> float:
    row = _row(parameters)
    pairs = itertools.pairwise(row)
    return sum(100 * (y - x * x) ** 2 + (1 - x) ** 2 for x, y in pairs)


def ackley(parameters: Parameters) -> float:
    row = _row(parameters)
    far = math.sqrt(sum(x * x for x in row) / len(row))
    wave = sum(math.cos(2 * math.pi * x) for x in row) / len(row)
    return -20 * math.exp(-0.2 * far) - math.exp(wave) + 20 + math.e


def levy(parameters: Parameters) -> float:
    row = [1 + (x - 1) / 4 for x in _row(parameters)]
    inner = sum(
        (w - 1) ** 2 * (1 + 10 * math.sin(math.pi * w + 1) ** 2) for w in row[:-1]
    )  # fmt: skip
    end = (row[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * row[-1]) ** 2)
    return math.sin(math.pi * row[0]) ** 2 + inner + end


def network(parameters: Parameters) -> float:
    """As the loss of a network might depend on what it is trained with."""
    worse = {"adam": 0.0, "sgd": 0.3, "lion": 0.6, "adagrad": 1.0}[parameters["optimizer"]]
    best_rate = -2.5 if parameters["optimizer"] == "adam" else -1.5
    rate = (math.log10(parameters["lr"]) - best_rate) ** 2
    size = 0.02 * (parameters["layers"] - 5) ** 2
    return rate + worse + size + 2 * (parameters["dropout"] - 0.2) ** 2


def choices(parameters: Parameters) -> float:
    """Mostly names, two of which work together."""
    best = {"a": "p", "b": "q", "c": "r", "d": "s"}
    wrong = sum(parameters[name] != value for name, value in best.items())
    together = parameters["a"] == "p" and parameters["b"] == "q"
    return wrong + (0.0 if together else 0.5) + (parameters["x"] - 0.7) ** 2


def models(parameters: Parameters) -> float:
    """Three kinds of models, each with parameters of its own; the best is hard to find."""
    if parameters["model"] == "trees":
        depth, rate = parameters["depth"], math.log10(parameters["rate"])
        return 0.25 + 0.01 * (depth - 6) ** 2 + 0.1 * (rate + 1) ** 2
    if parameters["model"] == "linear":
        return 0.4 + 0.02 * (math.log10(parameters["l2"]) + 2) ** 2
    c, worse = math.log10(parameters["c"]), 0.3
    if parameters["kernel"] == "rbf":
        worse = 0.2 * (math.log10(parameters["gamma"]) + 2 + 0.5 * (c - 1)) ** 2
    return 0.1 * (c - 1) ** 2 + worse


def layered(parameters: Parameters) -> float:
    """A network: each layer that there is has a width, and each optimizer parameters of its own."""
    widths = [parameters[f"width{number}"] for number in range(parameters["layers"])]
    shape = sum((math.log2(width) - 7 + number) ** 2 for number, width in enumerate(widths))
    size = 0.3 * abs(len(widths) - 3) + 0.05 * shape
    if parameters["optimizer"] == "adam":
        return size + 0.2 + 0.5 * (math.log10(parameters["adam_lr"]) + 3) ** 2
    slow = 4 * (parameters["momentum"] - 0.9) ** 2
    return size + slow + 0.5 * (math.log10(parameters["sgd_lr"]) + 1) ** 2


def switches(parameters: Parameters) -> float:
    """Four things that may be used, each with a strength that is right in the middle."""
    whole = 0.0
    for number, gain in enumerate((0.8, 0.5, 0.3, -0.4)):
        if parameters[f"use{number}"]:
            off = (parameters[f"strength{number}"] - 0.2 * (number + 1)) ** 2
            whole += gain * (4 * off - 1)
    return whole + (parameters["x"] - 0.3) ** 2


def _real(name: str) -> Problem:
    """A model on a data set, from a table."""
    table = read_table(name.rpartition(" ")[2])
    return Problem(name, "real", table.space, table.loss, table.best)


_NETWORK: Mapping[str, Any] = {
    "lr": {"min": 1e-5, "max": 1.0, "scale": "log"},
    "layers": {"min": 1, "max": 12, "type": "int"},
    "dropout": {"min": 0.0, "max": 0.8},
    "optimizer": ["adam", "sgd", "lion", "adagrad"],
}
_CHOICES: Mapping[str, Any] = {
    **{name: ["p", "q", "r", "s", "t"] for name in "abcd"},
    "x": {"min": 0.0, "max": 1.0},
}
_MODELS: Mapping[str, Any] = {
    "model": ["svm", "trees", "linear"],
    "c": {"min": 1e-3, "max": 1e3, "scale": "log", "active_if": {"model": "svm"}},
    "kernel": {"values": ["rbf", "poly", "sigmoid"], "active_if": {"model": "svm"}},
    "gamma": {"min": 1e-5, "max": 10.0, "scale": "log", "active_if": {"kernel": "rbf"}},
    "depth": {"min": 1, "max": 20, "type": "int", "active_if": {"model": "trees"}},
    "rate": {"min": 1e-4, "max": 1.0, "scale": "log", "active_if": {"model": "trees"}},
    "l2": {"min": 1e-6, "max": 1e2, "scale": "log", "active_if": {"model": "linear"}},
}
_WIDTH = {"min": 8, "max": 1024, "type": "int", "scale": "log"}
_LAYERED: Mapping[str, Any] = {
    "layers": {"min": 1, "max": 5, "type": "int"},
    **{
        f"width{number}": _WIDTH | ({"active_if": {"layers": list(range(number + 1, 6))}})
        for number in range(5)
    },
    "optimizer": ["adam", "sgd"],
    "adam_lr": {"min": 1e-5, "max": 1.0, "scale": "log", "active_if": {"optimizer": "adam"}},
    "sgd_lr": {"min": 1e-5, "max": 1.0, "scale": "log", "active_if": {"optimizer": "sgd"}},
    "momentum": {"min": 0.0, "max": 1.0, "active_if": {"optimizer": "sgd"}},
}
_SWITCHES: Mapping[str, Any] = {
    **{f"use{number}": [True, False] for number in range(4)},
    **{
        f"strength{number}": {"min": 0.0, "max": 1.0, "active_if": {f"use{number}": True}}
        for number in range(4)
    },
    "x": {"min": 0.0, "max": 1.0},
}
_BRANIN = {"x": {"min": -5.0, "max": 10.0}, "y": {"min": 0.0, "max": 15.0}}

PROBLEMS = (
    Problem("Branin", "continuous", _BRANIN, branin, 0.397887),
    Problem("Hartmann 6", "continuous", _box(6, 0, 1), hartmann6, -3.32237),
    Problem("Rosenbrock 4", "continuous", _box(4, -2, 2), rosenbrock, 0.0),
    Problem("Ackley 5", "continuous", _box(5, -20, 30), ackley, 0.0),
    Problem("Levy 4", "continuous", _box(4, -10, 10), levy, 0.0),
    Problem("network", "mixed", _NETWORK, network, 0.0),
    Problem("choices", "mixed", _CHOICES, choices, 0.0),
    Problem("models", "conditional", _MODELS, models, 0.0),
    Problem("layered", "conditional", _LAYERED, layered, 0.0),
    Problem("switches", "conditional", _SWITCHES, switches, -2.224),
    Problem("noisy Branin", "noisy", _BRANIN, branin, 0.397887, noise=2.0),
    Problem("noisy Hartmann 6", "noisy", _box(6, 0, 1), hartmann6, -3.32237, noise=0.2),
    *(_real(name) for name in ("svm", "xgboost", "small network")),
)

TRIALS_OF_CURVES, EPOCHS = 60, 27


def curve(seed: int, trial: int) -> list[float]:
    """The losses of a trial, epoch by epoch: they fall to a floor, each at its own pace."""
    luck = random.Random(f"{seed}/{trial}")
    floor, pace, begin = luck.random(), luck.uniform(0.1, 0.6), luck.uniform(1, 2)
    return [
        floor + begin * math.exp(-pace * epoch) + luck.gauss(0, 0.01) for epoch in range(EPOCHS)
    ]

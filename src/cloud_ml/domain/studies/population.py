"""The options of population based training, as they are asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloud_ml.models.common import refuse

LARGEST_POPULATION = 100
_MOST_FACTORS = 10
_LARGEST_FACTOR = 100.0


@dataclass(frozen=True, kw_only=True)
class Population:
    """A population whose members learn from each other.

    Attributes:
        population: How many members there are.
        quantile: This share of them, the worst, goes on from the best share of the same size.
        resample_probability: How often a parameter that changes is drawn anew from its range.
        factors: A number that changes is otherwise multiplied by one of these.
    """

    population: int = 8
    quantile: float = 0.25
    resample_probability: float = 0.25
    factors: tuple[float, ...] = (0.8, 1.2)


OPTIONS = tuple(asdict(Population()))
_ALIASES = {
    "size": "population", "population_size": "population", "n_population": "population",
    "num_members": "population", "quantile_fraction": "quantile",
    "truncation_threshold": "quantile", "perturbation_factors": "factors",
    "perturbation_interval": "the length of a trial, which your code decides",
}  # fmt: skip
"""Words of Ray Tune and Katib, and ours."""


def parse_population(options: Mapping[str, Any]) -> Population:
    """The population of these options.

    Raises:
        InvalidRequest: There is no such option, or its value is not allowed.
    """
    for name in options:
        if name not in OPTIONS:
            near = _ALIASES.get(name)
            hint = f"; did you mean {near}?" if near else ""
            field = f"algorithm_options.{name}"
            raise refuse(field, options[name], f"options of pbt: {', '.join(OPTIONS)}{hint}")
    found = {name: value for name, value in options.items() if value is not None}
    if "population" in found:
        _check_count("algorithm_options.population", found["population"])
    for name, most in (("quantile", 0.5), ("resample_probability", 1.0)):
        if name in found:
            found[name] = _number(f"algorithm_options.{name}", found[name], 0.0, most)
    if "factors" in found:
        found["factors"] = _factors("algorithm_options.factors", found["factors"])
    return Population(**found)


def _check_count(field: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 2 <= value <= LARGEST_POPULATION:
        raise refuse(field, value, f"a whole number, 2 to {LARGEST_POPULATION}")


def _number(field: str, value: Any, least: float, most: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        raise refuse(field, value, f"a number, {least:g} to {most:g}")
    return float(value)


def _factors(field: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST_FACTORS:
        raise refuse(field, value, f"a list of 1 to {_MOST_FACTORS} numbers, such as [0.8, 1.2]")
    smallest = 1 / _LARGEST_FACTOR
    return tuple(
        _number(f"{field}[{number}]", one, smallest, _LARGEST_FACTOR)
        for number, one in enumerate(value)
    )


def population_options(population: Population) -> Mapping[str, Any]:
    """The options that are in force."""
    return {**asdict(population), "factors": list(population.factors)}

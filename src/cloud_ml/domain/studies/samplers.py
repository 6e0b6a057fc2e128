"""The samplers of Optuna that studies offer as algorithms, and their options. Pure: imports no
Optuna.

A sampler is offered if it can be made anew for each suggestion. ``TPESampler`` and
``RandomSampler`` look at parameters and values of trials only. The others note what they need in
attributes of trials or of the study. Those attributes follow from the history, so a replay of it
writes them again (``replayed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from cloud_ml.domain.studies.space import Parameter
from cloud_ml.models.common import refuse

PREFIX = "optuna:"
_MOST_COUNT, _LONGEST_SHOWN = 10_000, 80


@dataclass(frozen=True)
class _WholeNumber:
    """A whole number of a range."""

    least: int
    most: int = _MOST_COUNT

    @property
    def allowed(self) -> str:
        return f"a whole number, {self.least} to {self.most}"

    def has(self, value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.least <= value <= self.most


@dataclass(frozen=True)
class _Fraction:
    """A number from 0 to 1."""

    allowed: str = "a number, 0 to 1"

    def has(self, value: Any) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and 0 <= value <= 1


@dataclass(frozen=True)
class _Flag:
    allowed: str = "true or false"

    def has(self, value: Any) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class _Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return " or ".join(self.words)

    def has(self, value: Any) -> bool:
        return value in self.words


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """What a sampler of Optuna takes.

    Attributes:
        options: Arguments of its constructor that a document can hold, with what each allows.
        several: Whether it searches for several objectives.
        conditional: Whether it takes conditional parameters.
        unordered: Whether it takes lists of names.
        learns_from_others: Whether trials of earlier studies help it.
        replayed: Whether its state is made again by a replay of the history.
        packages: What it imports beside Optuna.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    several: bool = True
    conditional: bool = True
    unordered: bool = True
    learns_from_others: bool = False
    replayed: bool = False
    packages: tuple[str, ...] = ()


_GENETIC = {
    "population_size": _WholeNumber(2, 1000),
    "mutation_prob": _Fraction(),
    "crossover_prob": _Fraction(),
    "swapping_prob": _Fraction(),
}
SAMPLERS: Mapping[str, Sampler] = {
    "TPESampler": Sampler(
        options={
            "n_startup_trials": _WholeNumber(0),
            "n_ei_candidates": _WholeNumber(1, 1000),
            "multivariate": _Flag(),
            "group": _Flag(),
            "constant_liar": _Flag(),
        },
        learns_from_others=True,
    ),
    "RandomSampler": Sampler(),
    "QMCSampler": Sampler(
        options={"qmc_type": _Choice(("sobol", "halton")), "scramble": _Flag()},
        conditional=False,
        replayed=True,
        packages=("scipy",),
    ),
    "NSGAIISampler": Sampler(options=_GENETIC, replayed=True),
    "NSGAIIISampler": Sampler(
        options={**_GENETIC, "dividing_parameter": _WholeNumber(1, 20)}, replayed=True
    ),
    "CmaEsSampler": Sampler(
        options={
            "n_startup_trials": _WholeNumber(0),
            "popsize": _WholeNumber(2, 1000),
            "use_separable_cma": _Flag(),
            "lr_adapt": _Flag(),
        },
        several=False,
        conditional=False,
        unordered=False,
        replayed=True,
        packages=("cmaes",),
    ),
}
_NOT_OFFERED = {
    "GPSampler": "needs PyTorch; write algorithm: gp",
    "GridSampler": "has a list of its own of all points; write algorithm: grid",
    "BruteForceSampler": "tries all combinations; write algorithm: grid",
    "PartialFixedSampler": "wraps another sampler; write a constant in the space: {value: 3}",
}
_SEED = "no seed here: set the seed of the study"
_ALIASES = {"pop_size": "population_size", "population": "population_size", "popsize": "popsize"}


def is_sampler(algorithm: str) -> bool:
    """Whether an algorithm is a sampler of Optuna."""
    return algorithm.startswith(PREFIX)


def sampler_of(algorithm: str) -> Sampler:
    """The sampler that an algorithm such as ``optuna:TPESampler`` names. It is offered."""
    return SAMPLERS[algorithm.removeprefix(PREFIX)]


def resolve_sampler(sampler: str) -> str | None:
    """The full name for one such as ``optuna:tpe``; ``None`` if no such sampler is offered."""
    named = _find(sampler, SAMPLERS)
    return None if named is None else PREFIX + named


def why_not_offered(sampler: str) -> str:
    """Why a sampler of Optuna is no algorithm; empty if there is none of that name."""
    named = _find(sampler, _NOT_OFFERED)
    return "" if named is None else f"{named} {_NOT_OFFERED[named]}"


def _find(sampler: str, names: Mapping[str, Any]) -> str | None:
    if not sampler.lower().startswith(PREFIX):
        return None
    plain = _plain(sampler[len(PREFIX) :])
    known = {_plain(name): name for name in names}
    return known.get(plain) or known.get(plain + "sampler")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def parse_sampler_options(algorithm: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a sampler, checked.

    Raises:
        InvalidRequest: There is no such option, or its value is not allowed.
    """
    known = sampler_of(algorithm).options
    for name, value in options.items():
        path = f"algorithm_options.{name[:_LONGEST_SHOWN]}"
        if name == "seed":
            raise refuse(path, value, _SEED)
        if name not in known:
            near = _ALIASES.get(name) or next(iter(get_close_matches(name, known, n=1)), "")
            hint = f"; did you mean {near}?" if near in known else ""
            there = ", ".join(known) or "none"
            raise refuse(path, value, f"options of {algorithm}: {there}{hint}")
        if value is not None and not known[name].has(value):
            raise refuse(path, value, known[name].allowed)
    found = {name: value for name, value in options.items() if value is not None}
    _check_together(found)
    return found


def _check_together(options: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other."""
    if options.get("group") and options.get("multivariate") is False:
        raise refuse("algorithm_options.multivariate", False, "true, as group is true")
    if options.get("lr_adapt") and options.get("use_separable_cma"):
        allowed = "false, as use_separable_cma is true"
        raise refuse("algorithm_options.lr_adapt", True, allowed)


def check_sampler_space(algorithm: str, space: Sequence[Parameter]) -> None:
    """Refuse parameters that a sampler cannot choose.

    Raises:
        InvalidRequest: There is one.
    """
    sampler = sampler_of(algorithm)
    for parameter in space:
        if parameter.active_if and not sampler.conditional:
            allowed = f"auto, gp, optuna:TPESampler or another, as {parameter.name} is conditional"
            raise refuse("algorithm", algorithm, allowed)
        if not (sampler.unordered or parameter.constant or parameter.ordered):
            allowed = (
                f"cma-es, optuna:TPESampler or another, as {parameter.name} is a list of names"
            )
            raise refuse("algorithm", algorithm, allowed)

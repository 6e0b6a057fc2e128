"""The algorithms by their names, and which of them chooses a trial."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from cloud_ml.domain.studies.samplers import (
    PREFIX,
    SAMPLERS,
    is_sampler,
    resolve_sampler,
    sampler_of,
    why_not_offered,
)
from cloud_ml.domain.studies.spec import StudySpec, TrialStatus
from cloud_ml.domain.studies.values import Suggestion
from cloud_ml.tuning import chance, grid, pbt, qmc
from cloud_ml.tuning.base import Algorithm, Outcome, Problem, problem_of

_LONGEST_SHOWN = 50
AUTO = "auto"
LIGHT: Mapping[str, Algorithm] = {
    "random": chance.suggest,
    "grid": grid.suggest,
    "qmc": qmc.suggest,
}
"""Those that the server runs itself."""
PBT = "pbt"
CMA_ES = "cma-es"
EHVI = "ehvi"
NUMERIC = (CMA_ES, EHVI, "gp", "nsga2", "tpe")
"""Those that need numpy and scipy, and cma-es a package of its name: the tuner runs them."""
NAMES = (AUTO, *sorted((*LIGHT, *NUMERIC, PBT)))
SEVERAL = (AUTO, EHVI, "gp", "grid", "nsga2", "qmc", "random")
"""Those that can search for several objectives."""
LEARNING_FROM_OTHERS = (AUTO, EHVI, "gp", "nsga2", "tpe")
"""Those that learn from trials of earlier studies, too."""

_TRANSLATED = {
    "sobol": "qmc", "quasirandom": "qmc", "qmcsampler": "qmc", "randomsampler": "random",
    "randomsearch": "random", "basicvariant": "random", "gridsampler": "grid", "gridsearch": "grid",
    "nsgaii": "nsga2", "nsgaiisampler": "nsga2", "nsgaiiisampler": "nsga2",
    "tpesampler": "tpe", "multivariatetpe": "tpe", "hyperopt": "tpe", "hyperoptsearch": "tpe",
    "gpsampler": "gp", "bayes": "gp", "bayesian": "gp", "bayesianoptimization": "gp",
    "skoptbayesianoptimization": "gp", "bayesopt": "gp", "bayesoptsearch": "gp", "botorch": "gp",
    "qehvi": EHVI, "qlogehvi": EHVI, "expectedhypervolumeimprovement": EHVI,
    "cma": CMA_ES, "cmaes": CMA_ES, "cmaessampler": CMA_ES, "catcma": CMA_ES, "catcmasampler": CMA_ES,
    "populationbasedtraining": PBT, "populationbased": PBT,
}  # fmt: skip
"""Names of Optuna, Katib and Ray Tune in small letters without signs, and ours."""
_ELSEWHERE = {
    "hyperband": 'no algorithm; write algorithm: auto and stopper: hyperband',
    "asha": 'no algorithm; write algorithm: auto and stopper: asha',
    "medianstop": 'no algorithm; write algorithm: auto and stopper: median',
    "pb2": "not offered; write pbt",
}  # fmt: skip
_MOST_FIRST, _LEAST_FIRST, _FIRST_OF_TPE = 32, 4, 10
_MOST_FOR_PROCESS = 500
_OBJECTIVES_OF_EHVI = (2, 3)
"""Of so many, ``auto`` takes it. It was not measured with four."""
_OPTUNA = "5"
"""The major version of Optuna whose samplers are offered."""


def resolve_name(name: str) -> str:
    """The name of ours for one of other tuners; else the name itself."""
    if name in NAMES:
        return name
    return resolve_sampler(name) or _TRANSLATED.get(_plain(name), name)


def is_known(name: str) -> bool:
    """Whether an algorithm has that name, which is resolved."""
    return name in NAMES or (is_sampler(name) and name.removeprefix(PREFIX) in SAMPLERS)


def searches_for_several(name: str) -> bool:
    """Whether an algorithm can search for several objectives."""
    return sampler_of(name).several if is_sampler(name) else name in SEVERAL


def searches_for_one(name: str) -> bool:
    """Whether an algorithm can search for one objective."""
    return name != EHVI


def learns_from_others(name: str) -> bool:
    """Whether an algorithm learns from trials of earlier studies, too."""
    return sampler_of(name).learns_from_others if is_sampler(name) else name in LEARNING_FROM_OTHERS


def advice(name: str) -> str:
    """What is allowed instead of a name that is no algorithm of ours."""
    samplers = ", ".join(PREFIX + one for one in SAMPLERS)
    if name.lower().startswith(PREFIX):
        other = why_not_offered(name) or "run another one with Optuna's client: cloudml hp proxy"
        return f"{samplers}; {other}"
    allowed = f"{', '.join(NAMES)}, {samplers}"
    if known := _ELSEWHERE.get(_plain(name)):
        return f"{allowed}; {name[:_LONGEST_SHOWN]} is {known}"
    near = get_close_matches(name[:_LONGEST_SHOWN].lower(), NAMES, n=1)
    return allowed + (f"; did you mean {near[0]}?" if near else "")


def has_numeric() -> bool:
    """Whether numpy and scipy are installed. Imports neither."""
    return not missing_packages(AUTO)


def missing_packages(algorithm: str) -> Sequence[str]:
    """Packages of the extra of an algorithm that it needs and that are not installed. Imports none."""
    needed: Sequence[str] = ("numpy", "scipy") if algorithm in (AUTO, *NUMERIC) else ()
    if algorithm == CMA_ES:
        needed = ("cmaes", *needed)
    if is_sampler(algorithm):
        needed = ("optuna", *sampler_of(algorithm).packages)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if "optuna" in needed and "optuna" not in missing:
        missing += _other_optuna()
    return missing


def _other_optuna() -> Sequence[str]:
    """Optuna itself where another one is installed: options and their defaults differ."""
    version = "none of a package"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("optuna")
    same = version.partition(".")[0] == _OPTUNA
    return [] if same else [f"optuna {_OPTUNA} (it has {version})"]


def extra_of(algorithm: str) -> str:
    """The extra of our distribution that brings what an algorithm needs."""
    return "optuna-samplers" if is_sampler(algorithm) else "tuning"


def choose_algorithm(name: str, problem: Problem) -> str:
    """The algorithm that chooses this trial: those that learn begin with even points, and ``auto``
    takes the Gaussian process unless trials are many. It does better than ``tpe`` also where most
    parameters are names. With two or three objectives it takes one for each of them (``ehvi``), which
    does better than ``gp`` there (``benchmarks/tuning``).
    """
    if name in LIGHT or is_sampler(name):  # a sampler has its own way to begin
        return name
    columns = len([one for one in problem.space if not one.constant])
    if name == AUTO:
        many = len(problem.of(Outcome.DONE)) > _MOST_FOR_PROCESS
        learned = "nsga2" if problem.several else "tpe"
        few = EHVI if problem.objectives in _OBJECTIVES_OF_EHVI else "gp"
        name = learned if many else few
    if name == CMA_ES and problem.number > problem.named:
        return name
    first = _FIRST_OF_TPE if name == "tpe" else min(max(2 * columns, _LEAST_FIRST), _MOST_FIRST)
    begun = problem.number - problem.named + len(problem.prior)
    if problem.changed:  # what counts is what is known of the space as it is
        begun = len(problem.observations) - len(problem.of(Outcome.IGNORED))
    even = begun < first or len(problem.of(Outcome.DONE)) < 2
    return "qmc" if even else name


def suggest(spec: StudySpec, history: Sequence[TrialStatus], number: int) -> Suggestion | None:
    """The parameters of the trial of that number: one that the user named, else of the algorithm
    of the study. ``None`` if only the tuner knows.
    """
    if number < len(spec.trials):
        member = number if spec.algorithm == PBT else None
        return Suggestion(spec.trials[number], member=member)
    if spec.algorithm == PBT:
        return pbt.suggest(spec, history, number)
    problem = problem_of(spec, history, number)
    light = LIGHT.get(choose_algorithm(spec.algorithm, problem))
    return None if light is None else Suggestion(light(problem))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())

"""Studies of population based training: what goes with a population is checked."""

from __future__ import annotations

from cloud_ml.domain.studies.population import OPTIONS, Population, parse_population
from cloud_ml.domain.studies.samplers import is_sampler
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.tuning.algorithms import PBT

GENERATIONS = 10
"""A study has so many of each member, unless it says how many trials it has."""


def read_population(algorithm: str, new: NewStudy) -> Population | None:
    """The population of a study; ``None`` if its algorithm has none.

    Raises:
        InvalidRequest: An option is wrong, or the study has what does not go with a population.
    """
    if algorithm != PBT:
        if new.algorithm_options and not is_sampler(algorithm):
            names = ", ".join(OPTIONS)
            allowed = f"nothing, as the algorithm is {algorithm}; pbt has {names}"
            raise refuse("algorithm_options", new.algorithm_options, allowed)
        return None
    if new.local:
        allowed = "another one: pbt goes on from checkpoints of jobs, and a local study has none"
        raise refuse("algorithm", new.algorithm, allowed)
    if new.stopper:
        allowed = "no stopper: the worst members of pbt take the checkpoints of the best"
        raise refuse("stopper", new.stopper, allowed)
    if new.repeats:
        allowed = "0: a trial of pbt is a part of a training, and says little when it is run alone"
        raise refuse("repeats", new.repeats, allowed)
    if not new.space:
        raise refuse("space", new.space, "at least one parameter, which pbt changes")
    found = parse_population(new.algorithm_options)
    if new.parallel > found.population:
        allowed = f"at most {found.population}: each member of the population runs one trial"
        raise refuse("parallel", new.parallel, allowed)
    if len(new.trials) > found.population:
        allowed = f"at most {found.population} trials, one of each member of the population"
        raise refuse("trials", f"{len(new.trials)} trials", allowed)
    if new.max_trials is not None and new.max_trials < found.population:
        allowed = f"{found.population} or more, one of each member of the population"
        raise refuse("max_trials", new.max_trials, allowed)
    return found

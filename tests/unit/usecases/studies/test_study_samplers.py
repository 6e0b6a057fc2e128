"""Studies with samplers of Optuna from the request to the jobs of trials, with a real store,
controller and tuner.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.studies.study import NewStudy, StudyExtension
from cloud_ml.tuning import algorithms
from unit.usecases.studies.test_studies import JOB, World, world

__all__ = ["world"]
pytestmark = pytest.mark.anyio

_RANGE: Mapping[str, Any] = {"lr": {"min": 0.0, "max": 1.0}}
_CONDITIONAL = {**_RANGE, "o": ["a", "b"], "m": {"values": [1, 2], "active_if": {"o": "a"}}}


def _new(sampler: str = "TPESampler", **fields: Any) -> NewStudy:
    options = {"job": JOB, "space": dict(_RANGE), "seed": 7, **fields}
    return NewStudy(name="rates", algorithm=f"optuna:{sampler}", **options)


async def test_trials_are_those_of_the_sampler_though_its_tuner_is_killed(world: World) -> None:
    world.tuner._answer_s = 60
    options = {"n_startup_trials": 3, "constant_liar": True, "group": None}
    study = await world.studies.create(
        _new("tpe", parallel=1, max_trials=6, algorithm_options=options)
    )
    assert study.algorithm == "optuna:TPESampler"
    assert study.algorithm_options == {"n_startup_trials": 3, "constant_liar": True}
    for number in range(6):
        (job,) = await world.jobs(number)
        if number == 3:
            for tuner in world.tuner.pids:
                os.kill(tuner, signal.SIGKILL)
        rate = float((job.spec.submitted.job_args or [])[-1].removeprefix("--lr="))
        await world.end(number, Phase.SUCCEEDED, (rate - 0.3) ** 2)
    study = await world.until(lambda study: study.phase == "Completed")
    assert len({trial.parameters["lr"] for trial in study.trials}) == 6
    assert "TunerFailed" not in [event.reason for event in await world.studies.events("rates")]


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"sampler": "Magic"}, "algorithm", "optuna:TPESampler, optuna:RandomSampler"),
        ({"sampler": "GPSampler"}, "algorithm", "GPSampler needs PyTorch; write algorithm: gp"),
        ({"sampler": "gridsampler"}, "algorithm", "write algorithm: grid"),
        ({"algorithm_options": {"n_startup": 3}}, "algorithm_options.n_startup",
         "options of optuna:TPESampler: n_startup_trials, n_ei_candidates, multivariate, group, "
         "constant_liar; did you mean n_startup_trials"),
        ({"algorithm_options": {"n_startup_trials": -1}}, "algorithm_options.n_startup_trials",
         "a whole number, 0 to 10000"),
        ({"algorithm_options": {"group": "yes"}}, "algorithm_options.group", "true or false"),
        ({"algorithm_options": {"seed": 1}}, "algorithm_options.seed", "the seed of the study"),
        ({"algorithm_options": {"group": True, "multivariate": False}},
         "algorithm_options.multivariate", "true, as group is true"),
        ({"sampler": "RandomSampler", "algorithm_options": {"x": 1}}, "algorithm_options.x",
         "options of optuna:RandomSampler: none"),
        ({"sampler": "QMCSampler", "algorithm_options": {"qmc_type": [1]}},
         "algorithm_options.qmc_type", "sobol or halton"),
        ({"sampler": "NSGAIISampler", "algorithm_options": {"mutation_prob": 1.5}},
         "algorithm_options.mutation_prob", "a number, 0 to 1"),
        ({"sampler": "NSGAIISampler", "algorithm_options": {"crossover_prob": 10**400}},
         "algorithm_options.crossover_prob", "a number, 0 to 1"),
        ({"sampler": "cmaes", "space": {"o": ["a", "b"]}}, "algorithm", "o is a list of names"),
        ({"sampler": "CmaEsSampler", "space": _CONDITIONAL}, "algorithm", "o is a list of names"),
        ({"sampler": "QMCSampler", "space": _CONDITIONAL}, "algorithm", "m is conditional"),
        ({"sampler": "CmaEsSampler", "objective": ["a:min", "b:max"]}, "algorithm",
         "optuna:NSGAIIISampler, as there are several objectives"),
        ({"sampler": "QMCSampler", "warm_start": ["before"]}, "warm_start", "no earlier study"),
    ],
)  # fmt: skip
async def test_what_a_sampler_cannot_do_is_refused_by_name(
    world: World, fields: Mapping[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(_new(**fields))
    assert (refused.value.field, message in refused.value.message) == (field, True)


async def test_a_server_without_optuna_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "_OPTUNA", "6")
    with pytest.raises(InvalidRequest, match=r"this server lacks optuna 6 \(it has 5\."):
        await world.studies.create(_new())
    monkeypatch.setattr(algorithms.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequest, match="this server lacks optuna and cmaes") as refused:
        await world.studies.create(_new("CmaEsSampler"))
    assert "pip install 'cloud-ml[optuna-samplers]'" in (refused.value.hint or "")


async def test_a_sampler_goes_on_in_a_space_that_has_changed(world: World) -> None:
    world.tuner._answer_s = 60
    await world.studies.create(_new("CmaEsSampler", parallel=1, max_trials=2))
    for number in range(2):
        await world.end(number, Phase.SUCCEEDED, 0.5 + number)
    await world.until(lambda study: study.phase == "Completed")
    with pytest.raises(InvalidRequest, match="o is a list of names"):
        extension = StudyExtension(trials=1, space={"o": ["a", "b"]})
        await world.studies.act("rates", "extend", extension)
    extension = StudyExtension(trials=2, space={"lr": {"min": 5.0, "max": 6.0}, "x": {"value": 3}})
    await world.studies.act("rates", "extend", extension)
    for number in (2, 3):
        await world.end(number, Phase.SUCCEEDED, 0.4)
    study = await world.until(lambda study: study.phase == "Completed" and study.ended == 4)
    assert all(5 <= trial.parameters["lr"] <= 6 for trial in study.trials[2:])
    assert "TunerFailed" not in [event.reason for event in await world.studies.events("rates")]

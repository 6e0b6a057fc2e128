"""Spaces of studies from the request to the jobs of trials, with a real store and controller."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models.studies.study import KeptCheckpoints, NewStudy, QueuedTrials, StudyExtension
from cloud_ml.usecases.studies.spaces import change_space
from unit.usecases.studies.test_studies import JOB, World, world

__all__ = ["world"]
pytestmark = pytest.mark.anyio

_CONDITIONAL: dict[str, Any] = {
    "optimizer": ["adam", "sgd"],
    "momentum": {"values": [0.5, 0.9], "active_if": {"optimizer": "sgd"}},
    "token": {"values": ["abc-secret", "b"], "active_if": {"optimizer": "sgd"}},
    "rounds": {"value": 3, "active_if": {"token": "abc-secret"}},
}


def _new(**fields: Any) -> NewStudy:
    return NewStudy(name="rates", **{"job": JOB, "algorithm": "grid", **fields})


async def test_a_trial_has_no_argument_of_a_parameter_that_is_not_active(world: World) -> None:
    await world.studies.create(_new(space=_CONDITIONAL, parallel=5))
    jobs = await world.jobs(0, 1, 2, 3, 4)
    arguments = [" ".join(job.spec.submitted.job_args or []) for job in jobs]
    assert arguments == [
        "--epochs 3 --optimizer=adam",
        "--epochs 3 --optimizer=sgd --momentum=0.5 --token=abc-secret --rounds=3",
        "--epochs 3 --optimizer=sgd --momentum=0.5 --token=b",
        "--epochs 3 --optimizer=sgd --momentum=0.9 --token=abc-secret --rounds=3",
        "--epochs 3 --optimizer=sgd --momentum=0.9 --token=b",
    ]
    study = await world.studies.describe("rates")
    assert study.max_trials == 5
    assert study.space["momentum"] == _CONDITIONAL["momentum"]
    for path in ("/api/v1/studies/rates", "/cloud_ml/v1/hp/rates", "/cloud_ml/v1/hp/rates/trials"):
        answer = await world.served.member.call("GET", path)
        assert answer.status == 200
        assert "abc-secret" not in answer.text, path
    for number in range(5):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")


async def test_a_trial_of_a_users_own_keeps_the_conditions(world: World) -> None:
    await world.studies.create(_new(space=_CONDITIONAL, algorithm="random", parallel=1))
    with pytest.raises(InvalidRequest, match="momentum counts only if optimizer is sgd"):
        queued_trials = QueuedTrials(trials=[{"optimizer": "adam", "momentum": 0.9}])
        await world.studies.act("rates", "enqueue", queued_trials)
    queued_trials = QueuedTrials(trials=[{"optimizer": "adam"}])
    assert (await world.studies.act("rates", "enqueue", queued_trials)).queued == [
        {"optimizer": "adam"}
    ]


async def test_a_study_keeps_its_constraints(world: World) -> None:
    space = {name: {"min": 1, "max": 9, "type": "int"} for name in "ab"}
    fields: dict[str, Any] = {"space": space, "parallel": 3, "constraints": ["a < b", "a * b > 60"]}
    study = await world.studies.create(_new(**fields))
    assert (study.max_trials, study.constraints) == (2, ["a < b", "a * b > 60"])
    jobs = await world.jobs(0, 1)
    arguments = [" ".join((job.spec.submitted.job_args or [])[2:]) for job in jobs]
    assert arguments == ["--a=7 --b=9", "--a=8 --b=9"]
    with pytest.raises(InvalidRequest, match="a < b does not hold: a is 3, b is 2"):
        await world.studies.act("rates", "enqueue", QueuedTrials(trials=[{"a": 3, "b": 2}]))


@pytest.mark.parametrize(
    ("constraints", "field"),
    [
        (["a > 9"], "constraints"),
        (["a < b", "a <"], "constraints[1]"),
        (["a < c"], "constraints[0]"),
        (["a < 9"] * 21, "constraints"),
    ],
)
async def test_constraints_that_cannot_be_kept_are_refused(
    world: World, constraints: list[str], field: str
) -> None:
    space = {name: {"min": 1, "max": 9, "type": "int"} for name in "ab"}
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(_new(space=space, constraints=constraints))
    assert refused.value.field == field
    assert [study async for study in world.studies.list()] == []


async def test_conditions_and_the_evolution_strategy_do_not_go_together(world: World) -> None:
    with pytest.raises(InvalidRequest, match="as momentum is conditional"):
        await world.studies.create(_new(space=_CONDITIONAL, algorithm="cma-es"))


async def test_a_study_goes_on_in_a_space_that_has_changed(world: World) -> None:
    space = {"lr": {"min": 0.0, "max": 1.0}, "depth": [1, 2]}
    new = _new(space=space, algorithm="random", max_trials=2, parallel=1, seed=1)
    await world.studies.create(new)
    for number in range(2):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    before = await world.until(lambda study: study.phase == "Completed")
    with pytest.raises(InvalidRequest, match=r"space\.depht"):
        await world.studies.act("rates", "extend", StudyExtension(trials=1, space={"depht": None}))
    with pytest.raises(InvalidRequest, match="constraints"):
        extension = StudyExtension(trials=1, constraints=["depth > 5"])
        await world.studies.act("rates", "extend", extension)
    assert (await world.studies.describe("rates")).max_trials == 2
    changes = {"lr": {"min": 5.0, "max": 6.0}, "depth": None, "width": [8]}
    extension = StudyExtension(trials=2, space=changes, constraints=["lr < 5.5"])
    study = await world.studies.act("rates", "extend", extension)
    assert study.space == {"lr": {"min": 5.0, "max": 6.0}, "width": [8]}
    assert (study.max_trials, study.constraints) == (4, ["lr < 5.5"])
    for number in (2, 3):
        await world.end(number, Phase.SUCCEEDED, 0.4)
    study = await world.until(lambda study: study.phase == "Completed" and study.ended == 4)
    assert study.trials[:2] == before.trials, "they are shown as they were"
    for trial in study.trials[2:]:
        assert trial.parameters.keys() == {"lr", "width"}
        assert 5.0 <= trial.parameters["lr"] < 5.5


async def test_a_changed_space_drops_trials_of_users_that_do_not_fit(world: World) -> None:
    space = {**_CONDITIONAL, "lr": {"min": 0.0, "max": 1.0}, "width": {"value": 8}}
    named = [
        {"optimizer": "adam", "lr": 0.9},  # begins before the space changes
        {"optimizer": "adam", "lr": 0.8},
        {"optimizer": "adam", "lr": 0.1},
    ]
    secret = {"momentum": 0.9, "token": "abc-secret", "rounds": 3}
    queued = [
        {"optimizer": "adam", "lr": 0.2, "width": 8},
        {"optimizer": "adam", "lr": 0.7},
        {"optimizer": "sgd", "lr": 0.3, **secret},
        {"optimizer": "adam", "lr": 0.3},
    ]
    new = _new(space=space, algorithm="random", parallel=1, max_trials=4, trials=named)
    await world.studies.create(new)
    await world.jobs(0)
    await world.studies.act("rates", "enqueue", QueuedTrials(trials=queued))
    changes = {
        "lr": {"min": 0.0, "max": 0.5}, "momentum": None, "rounds": None,
        "token": {"values": ["c"], "active_if": {"optimizer": "sgd"}},
        "depth": {"value": 2, "active_if": {"optimizer": "adam"}},
    }  # fmt: skip
    extension = StudyExtension(trials=1, space=changes, constraints=["lr < 0.25"])
    study = await world.studies.act("rates", "extend", extension)
    range_of_now = "allowed is 0 to 0.5, as the space says"
    dropped = [
        f"trial optimizer=adam lr=0.8 width=8: lr is 0.8; {range_of_now}",
        f"trial optimizer=adam lr=0.7 width=8: lr is 0.7; {range_of_now}",
        "trial optimizer=sgd lr=0.3 momentum=0.9 token=****** rounds=3 width=8: momentum is 0.9; "
        "allowed is no such parameter, but optimizer, token, lr, width, depth",
        "trial optimizer=adam lr=0.3 width=8: allowed is a trial that keeps the constraints: "
        "lr < 0.25 does not hold: lr is 0.3",
    ]
    assert (study.dropped, study.max_trials) == (dropped, 5)
    depth = {"width": 8, "depth": 2}
    kept = [{"optimizer": "adam", "lr": lr, **depth} for lr in (0.1, 0.2)]
    assert study.queued == kept
    events = await world.studies.events("rates")
    messages = [event.message for event in events if event.reason == "TrialDropped"]
    assert messages == [f"the changed space excludes {one}" for one in dropped]
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.jobs(1)
    extension = StudyExtension(trials=1, space={"width": {"value": 16}})
    study = await world.studies.act("rates", "extend", extension)
    assert (study.max_trials, study.queued) == (5, [])
    assert study.dropped == [
        "trial optimizer=adam lr=0.2 width=8 depth=2: width is 8; allowed is one of [16]"
    ]
    for number in range(1, 5):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    study = await world.until(lambda study: study.phase == "Completed")
    parameters = [trial.parameters for trial in study.trials]
    assert parameters[:2] == [{**named[0], "width": 8}, kept[0]]
    assert len(parameters) == 5
    assert all(one["width"] == 16 and one["lr"] < 0.25 for one in parameters[2:])
    study = await world.studies.act("rates", "extend", StudyExtension(trials=1))
    assert (study.dropped, study.max_trials) == ([], 6)


async def test_a_grid_that_has_grown_repeats_nothing(world: World) -> None:
    await world.studies.create(_new(space={"a": [1, 2]}, parallel=1))
    for number in range(2):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")
    extension = StudyExtension(trials=2, space={"a": [3, 2, 1, 4]})
    await world.studies.act("rates", "extend", extension)
    for number in (2, 3):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    study = await world.until(lambda study: study.phase == "Completed" and study.ended == 4)
    assert [trial.parameters["a"] for trial in study.trials] == [1, 2, 3, 4]


async def _runs(world: World, filter_text: str) -> list[dict[str, Any]]:
    """The runs that a filter finds."""
    path = f"/api/v1/runs?filter={quote(filter_text)}"
    found: list[dict[str, Any]] = (await world.served.member.call("GET", path)).json()["items"]
    return found


async def test_parameters_are_passed_as_variables(world: World) -> None:
    job = {**JOB, "environment": {"HOME_OF": "x"}}
    space = {"LR": [0.5], "cache": {"values": [True], "active_if": {"LR": 0.5}}}
    study = await world.studies.create(_new(job=job, space=space, parameters_as="environment"))
    (made,) = await world.jobs(0)
    assert made.spec.submitted.job_args == ["--epochs", "3"]
    assert made.spec.submitted.environment == {"HOME_OF": "x", "LR": "0.5", "cache": "true"}
    (run,) = await _runs(world, "params.LR = '0.5'")
    assert run["params"] == {"epochs": "3", "LR": "0.5", "cache": "true"}
    assert study.parameters_as == "environment"
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")


async def test_parameters_are_passed_as_a_file(world: World) -> None:
    space = {"lr": [0.5], "cache": {"values": [True]}, "api-token": ["abc-secret"], "n": [3]}
    await world.studies.create(_new(space=space, parameters_as="file"))
    (made,) = await world.jobs(0)
    assert made.spec.submitted.job_args == ["--epochs", "3"]
    assert made.spec.workload.program.variables["CLOUDML_PARAMETERS"] == (
        '{"lr": 0.5, "cache": true, "api-token": "abc-secret", "n": 3}'
    )
    for path in ("/api/v1/studies/rates", "/api/v1/jobs/rates-hp-0"):
        answer = await world.served.member.call("GET", path)
        assert (answer.status, "abc-secret" in answer.text) == (200, False), path
    shown = json.loads(answer.text)["spec"]["environment"]["CLOUDML_PARAMETERS"]
    assert shown == '{"lr": 0.5, "cache": true, "api-token": "******", "n": 3}'
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"parameters_as": "files"}, "parameters_as"),
        ({"parameters_as": "file"}, "job.environment.CLOUDML_PARAMETERS"),
        ({"parameters_as": "environment", "space": {"batch-size": [1, 2]}}, "space.batch-size"),
        ({"parameters_as": "environment", "space": {"HOME_OF": [1, 2]}}, "space.HOME_OF"),
    ],
)
async def test_a_parameter_that_is_no_variable_is_refused(
    world: World, fields: dict[str, Any], field: str
) -> None:
    job = {**JOB, "environment": {"HOME_OF": "x", "CLOUDML_PARAMETERS": "x"}}
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(_new(**{"job": job, "space": {"a": [1, 2]}, **fields}))
    assert refused.value.field == field


def test_a_parameter_that_changes_keeps_its_conditions() -> None:
    before = (parse_space(_CONDITIONAL), ())
    for change in ([0.1, 0.2], {"min": 0.8, "max": 0.9}):
        space, _ = change_space("tpe", before, {"momentum": change}, None)
        (momentum,) = (one for one in space if one.name == "momentum")
        assert momentum.document()["active_if"] == {"optimizer": "sgd"}
    always = {"values": [0.1], "active_if": None}
    space, _ = change_space("tpe", before, {"momentum": always}, None)
    assert next(one for one in space if one.name == "momentum").document() == [0.1]


_RATE = {"lr": {"min": 0.1, "max": 1.0}}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"objective": ["a:min", "b:min"]}, "algorithm"),
        ({"local": True, "job": {}}, "algorithm"),
        ({"stopper": "asha"}, "stopper"),
        ({"repeats": 2}, "repeats"),
        ({"parallel": 9}, "parallel"),
        ({"max_trials": 7}, "max_trials"),
        ({"space": {}, "trials": [{"lr": 1}]}, "space"),
        ({"trials": [{"lr": 0.5}] * 9}, "trials"),
        ({"algorithm": "random", "algorithm_options": {"population": 4}}, "algorithm_options"),
        ({"algorithm_options": {"size": 4}}, "algorithm_options.size"),
        ({"algorithm_options": {"population": 1}}, "algorithm_options.population"),
        ({"algorithm_options": {"population": 4.0}}, "algorithm_options.population"),
        ({"algorithm_options": {"quantile": 0.6}}, "algorithm_options.quantile"),
        ({"algorithm_options": {"quantile": True}}, "algorithm_options.quantile"),
        ({"algorithm_options": {"resample_probability": "x"}}, "algorithm_options.resample_probability"),
        ({"algorithm_options": {"factors": 2}}, "algorithm_options.factors"),
        ({"algorithm_options": {"factors": [0.8, 0]}}, "algorithm_options.factors[1]"),
    ],
)  # fmt: skip
async def test_what_does_not_go_with_a_population_is_refused(
    world: World, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(_new(**{"space": _RATE, "algorithm": "pbt", **fields}))
    assert refused.value.field == field


async def test_a_population_has_its_options_and_its_trials(world: World) -> None:
    options = {"population": 2, "resample_probability": None}
    study = await world.studies.create(
        _new(space={"a": [1, 2]}, algorithm="pbt", algorithm_options=options, parallel=1)
    )
    assert study.max_trials == 20, "more than there are combinations"
    assert study.algorithm_options == {
        "population": 2, "quantile": 0.25, "resample_probability": 0.25, "factors": [0.8, 1.2],
    }  # fmt: skip
    queued_trials = QueuedTrials(trials=[{"a": 1}])
    with pytest.raises(Conflict, match="belongs to a member"):
        await world.studies.act("rates", "enqueue", queued_trials)
    with pytest.raises(InvalidRequest, match="members of pbt go on"):
        await world.studies.act("rates", "extend", StudyExtension(trials=2, space={"a": [1]}))
    assert (await world.studies.act("rates", "extend", StudyExtension(trials=2))).max_trials == 22
    await world.end(0, Phase.SUCCEEDED, 0.5)
    study = await world.until(lambda study: len(study.trials) > 1)
    assert [(trial.member, trial.parent) for trial in study.trials] == [(0, None), (1, None)]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"objective": ["a:min", "b:min"]}, "repeats"),
        ({"local": True, "job": {}}, "repeats"),
        ({"target": 0.5}, "target"),
        ({"repeats": 21}, "repeats"),
        ({"repeats": -1}, "repeats"),
        ({"repeat_best": 0}, "repeat_best"),
    ],
)
async def test_what_does_not_go_with_repeats_is_refused(
    world: World, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        usual = {"space": _RATE, "algorithm": "random", "repeats": 2}
        await world.studies.create(_new(**{**usual, **fields}))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("keep_checkpoints", "fields", "allowed"),
    [
        ("some", {}, "all, best, none, or a number of trials, 1 to"),
        (0, {}, "1 to"),
        (-1, {}, "1 to"),
        ("2.5", {}, "1 to"),
        (10**9, {}, "1 to"),
        ("best", {"local": True, "job": {}}, "a loop of yours"),
        (2, {"objective": ["a:min", "b:min"]}, "Pareto front"),
    ],
)
async def test_checkpoints_that_cannot_be_kept_so_are_refused(
    world: World, keep_checkpoints: Any, fields: dict[str, Any], allowed: str
) -> None:
    with pytest.raises(InvalidRequest, match=allowed) as refused:
        usual = {"space": _RATE, "algorithm": "random", "keep_checkpoints": keep_checkpoints}
        await world.studies.create(_new(**{**usual, **fields}))
    assert refused.value.field == "keep_checkpoints"


@pytest.mark.parametrize(
    ("keep_checkpoints", "shown"),
    [("all", "all"), ("Best", "best"), (1, "best"), (3, 3), ("3", 3), ("none", "none")],
)
async def test_the_kept_checkpoints_of_a_study_are_shown(
    world: World, keep_checkpoints: str | int, shown: str | int
) -> None:
    study = await world.studies.create(
        _new(space=_RATE, algorithm="random", keep_checkpoints=keep_checkpoints)
    )
    assert study.keep_checkpoints == shown


async def test_the_kept_checkpoints_of_a_study_are_changed(world: World) -> None:
    await world.studies.create(_new(space=_RATE, algorithm="random"))
    change = KeptCheckpoints(keep_checkpoints=2)
    assert (await world.studies.act("rates", "keep", change)).keep_checkpoints == 2
    with pytest.raises(InvalidRequest, match="all, best, none") as refused:
        await world.studies.act("rates", "keep", KeptCheckpoints(keep_checkpoints="latest"))
    assert refused.value.field == "keep_checkpoints"

"""Importance and curves of a study, through the API and the SDK."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from cloud_ml.models.studies.study import NewStudy
from unit.usecases.studies.test_ask_tell import World, world  # noqa: F401 - a fixture
from unit.usecases.studies.test_studies import JOB

pytestmark = pytest.mark.anyio
_SPACE: dict[str, Any] = {
    "lr": {"min": 0.0, "max": 1.0}, "layers": {"min": 1, "max": 3, "type": "int"}
}  # fmt: skip


async def _loop(world: World, trials: int) -> None:  # noqa: F811
    study = await world.loops.local("rates", _SPACE, algorithm="random", max_trials=trials, seed=1)
    while (trial := await study.ask()) is not None:
        for step in range(3):
            await trial.report(step, trial.parameters["lr"] + 1 / (step + 1))
        await study.tell(trial)


async def test_a_study_says_which_parameter_matters(world: World) -> None:  # noqa: F811
    await _loop(world, 12)
    found = await world.loops.importance("rates")
    assert (found.study, found.objective, found.trials) == ("rates", "loss", 12)
    assert [one.name for one in found.parameters] == ["lr", "layers"]
    assert found.parameters[0].fanova > 0.5 > found.parameters[1].fanova_high
    assert await world.loops.importance("rates", objective="loss") == found
    with pytest.raises(InvalidRequest, match="allowed is loss"):
        await world.loops.importance("rates", objective="accuracy")
    curves = await world.loops.curves("rates", points=2)
    assert len(curves.curves) == 12
    assert curves.curves[0].steps == [0, 2]
    assert curves.curves[0].values[0] > curves.curves[0].values[1]  # type: ignore[operator]
    with pytest.raises(InvalidRequest, match="points"):
        await world.loops.curves("rates", points=1)


async def test_too_few_trials_say_nothing(world: World) -> None:  # noqa: F811
    await _loop(world, 2)
    with pytest.raises(Conflict, match="2 trials of rates have completed; importance takes 5"):
        await world.loops.importance("rates")
    with pytest.raises(NotFound):
        await world.loops.curves("other")


async def test_the_curve_of_a_job_is_what_it_reported(world: World) -> None:  # noqa: F811
    await world.studies.create(
        NewStudy(name="rates", job={**JOB, "check_uris": False}, space=_SPACE, max_trials=2)
    )
    await world.report(0, 0.5, step=1)
    await world.report(1, float("inf"), step=1)
    found = await world.loops.curves("rates")
    assert [(one.job, one.steps, one.values) for one in found.curves] == [
        ("rates-hp-0", [1], [0.5]),
        ("rates-hp-1", [1], ["Infinity"]),
    ]


async def test_a_study_of_named_trials_has_the_values_that_they_have(world: World) -> None:  # noqa: F811
    trials = [{"lr": n / 7, "o": "ab"[n % 2], "fixed": 3} for n in range(12)]
    study = await world.loops.local("rates", trials=trials, seed=1)
    while (trial := await study.ask()) is not None:
        await study.tell(trial, trial.parameters["lr"])
    found = await world.loops.importance("rates")
    assert [one.name for one in found.parameters] == ["lr", "o"]
    assert found.parameters[0].fanova > 0.5


async def test_a_study_with_a_constant_has_an_importance_after_its_space_has_changed(
    world: World,  # noqa: F811
) -> None:
    space = {**_SPACE, "batch": {"value": 32}}
    study = await world.loops.local("rates", space, algorithm="random", max_trials=20, seed=1)
    while (trial := await study.ask()) is not None:
        await study.tell(trial, trial.parameters["lr"])
    await world.loops.extend("rates", 1, space={"lr": {"min": 0.0, "max": 0.6}})
    trials = (await world.loops.describe("rates")).trials
    kept = [one for one in trials if one.parameters["lr"] <= 0.6]
    assert 5 <= len(kept) < 20
    found = await world.loops.importance("rates")
    assert found.trials == len(kept), "trials beyond the new space say nothing about it"
    assert [one.name for one in found.parameters] == ["lr", "layers"]
    await world.loops.extend("rates", 1, space={"lr": {"min": 5.0, "max": 6.0}})
    with pytest.raises(Conflict, match="0 trials of rates have completed in its space of now"):
        await world.loops.importance("rates")

"""Studies that begin with the trials of earlier ones, through the API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.domain.studies.spec import STUDY, PriorTrial
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.usecases.studies.warm_starts import _newest
from unit.usecases.studies.test_ask_tell import World, world  # noqa: F401 - a fixture
from unit.usecases.studies.test_studies import JOB

pytestmark = pytest.mark.anyio
_SPACE: dict[str, Any] = {"lr": {"min": 0.0, "max": 1.0}}


async def _ended(here: World, name: str, count: int = 8, **fields: Any) -> None:
    study = await here.loops.local(name, _SPACE, max_trials=count, seed=1, **fields)
    while (trial := await study.ask()) is not None:
        await study.tell(trial, (trial.parameters["lr"] - 0.3) ** 2)
    async with asyncio.timeout(60):
        while (await here.loops.describe(name)).phase != "Completed":
            await asyncio.sleep(0.01)


async def test_a_study_learns_from_an_earlier_one_from_its_first_trial_on(world: World) -> None:  # noqa: F811
    await _ended(world, "first")
    study = await world.loops.local("second", _SPACE, warm_start=["first"], algorithm="gp", seed=2)
    trials = [await study.ask() for _ in range(3)]  # no value of its own is known to any of them
    best = min(abs(trial.parameters["lr"] - 0.3) for trial in trials if trial is not None)
    assert best < 0.03
    found = await world.loops.describe("second")
    assert (found.warm_start, found.prior_trials) == (["first"], 8)
    assert [one.number for one in found.trials] == [0, 1, 2], "those of the first are not its own"


async def test_the_first_trial_of_a_study_of_jobs_is_learned_too(world: World) -> None:  # noqa: F811
    await _ended(world, "first")
    world.served.platform.objects.put("cloudml", "trainer.whl", b"code")
    new = NewStudy(name="rates", job=JOB, space=_SPACE, warm_start=["first"], max_trials=3, seed=2)
    await world.studies.create(new)
    found = await world.until(lambda study: len(study.trials) == 2)
    best = min(abs(trial.parameters["lr"] - 0.3) for trial in found.trials)
    assert best < 0.03


async def test_importance_of_several_objectives_takes_earlier_trials_with_the_one_asked_for(
    world: World,  # noqa: F811
) -> None:
    space = {"lr": {"min": 0.0, "max": 1.0}, "width": {"min": 0.0, "max": 1.0}}

    async def run(name: str, count: int, **fields: Any) -> None:
        both = ["loss:min", "size:min"]
        study = await world.loops.local(name, space, objective=both, max_trials=count, **fields)
        while (trial := await study.ask()) is not None:
            values = trial.parameters
            await study.tell(trial, [values["lr"] ** 2, values["width"]])
        async with asyncio.timeout(60):
            while (await world.loops.describe(name)).phase != "Completed":
                await asyncio.sleep(0.01)

    await run("first", 30, seed=1, algorithm="random")
    await run("second", 6, seed=2, algorithm="nsga2", warm_start=["first"])
    for metric, parameter in (("loss", "lr"), ("size", "width")):
        found = await world.loops.importance("second", objective=metric)
        assert found.trials == 36, "its own and those of the first"
        assert found.parameters[0].name == parameter
        assert found.parameters[0].fanova > 0.8


async def test_what_becomes_of_the_earlier_study_changes_nothing(world: World) -> None:  # noqa: F811
    await _ended(world, "first")
    await world.loops.local("second", _SPACE, warm_start=["first"], seed=2)
    await world.loops.delete("first")
    record = world.served.store.find(STUDY, "default", "second")
    assert record is not None
    assert len(record.spec.prior) == 8


def test_the_newest_trials_are_kept_up_to_a_bound_of_bytes() -> None:
    def trials(count: int, length: int) -> list[PriorTrial]:
        return [
            PriorTrial(parameters={"n": n, "x": "x" * length}, costs=(0.0,)) for n in range(count)
        ]

    few = _newest(trials(400, 10_000))
    assert [one.parameters["n"] for one in few] == list(range(400 - len(few), 400))
    assert 100 <= len(few) <= 105
    assert len(_newest(trials(2, 2_000_000))) == 1
    assert len(_newest(trials(600, 1))) == 500


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"warm_start": ["nothing"]}, r"warm_start\[0\] is 'nothing'; allowed is a study of your"),
        ({"warm_start": ["open"]}, r"warm_start\[0\] is open, which is Running"),
        (
            {"warm_start": ["first"], "objective": "loss:max"},
            "objective loss:max; that of first is",
        ),
        ({"warm_start": ["first"], "algorithm": "random"}, "as the algorithm is random"),
        ({"warm_start": ["first"], "space": {"lr": ["a"]}}, "a completed trial that fits"),
        ({"warm_start": [f"n{n}" for n in range(11)]}, "at most 10 studies"),
    ],
)
async def test_what_cannot_be_learned_from_is_refused(
    world: World,  # noqa: F811
    fields: dict[str, Any],
    why: str,
) -> None:
    await _ended(world, "first", 4)
    await world.loops.local("open", _SPACE)
    space = fields.pop("space", _SPACE)
    with pytest.raises(InvalidRequest, match=why):
        await world.loops.local("second", space, **fields)


async def test_a_study_of_another_organisation_is_as_absent(world: World) -> None:  # noqa: F811
    await _ended(world, "first")
    stranger = world.served.stranger.identity
    endpoint = world.other.endpoint
    async with AsyncCloudMlClient(stranger.access_key, stranger.secret, endpoint) as client:
        with pytest.raises(InvalidRequest, match="a study of your organisation"):
            await client.studies.local("second", _SPACE, warm_start=["first"])

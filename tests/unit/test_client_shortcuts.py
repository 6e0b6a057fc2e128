"""Runs that a block of code logs to, and studies to hold on to, in both faces of the SDK."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from cloud_ml.aio import logged_run
from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    WaitTimedOut,
)
from cloud_ml.models.jobs.train_job import TrainJob
from unit.usecases.studies.test_ask_tell import World, world  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio


def _log(world: World) -> str:  # noqa: F811
    client = world.other
    parameters = {"lr": 0.1, "cache": True}
    with client.run("laptop", experiment="digits", params=parameters, tags={"a": "b"}) as run:
        for _ in range(1500):
            run.log(loss=0.5)
        run.log(9000, loss=math.nan, **{"val/accuracy": 1})
        run.params(optimizer="adam")
        run.tags(note="first")
        assert client.runs.describe(run.uid).state == "RUNNING"
    return run.uid


async def test_a_block_logs_to_a_run(world: World) -> None:  # noqa: F811
    uid = await asyncio.to_thread(_log, world)
    runs = world.other.runs
    found = await asyncio.to_thread(runs.describe, uid)
    assert (found.name, found.experiment, found.state) == ("laptop", "digits", "FINISHED")
    assert found.params == {"lr": "0.1", "cache": "True", "optimizer": "adam"}
    assert (found.tags["a"], found.tags["note"]) == ("b", "first")
    points = await asyncio.to_thread(lambda: list(runs.all_points(uid, "loss")))
    assert [point.step for point in points] == [*range(1500), 9000]
    assert math.isnan(float(points[-1].value))
    key, endpoint = world.served.member.identity, world.other.endpoint
    async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
        async with client.run("again", experiment="digits") as run:
            await run.log(1, loss=0.25)
        assert (await client.runs.describe(run.uid)).experiment_id == found.experiment_id
        with pytest.raises(ZeroDivisionError):
            async with client.run("fails") as failed:
                await failed.log(1, loss=1)
                raise ZeroDivisionError
        described = await client.runs.describe(failed.uid)
        assert (described.state, described.metrics) == ("FAILED", {"loss": 1.0})
        with pytest.raises(InvalidRequest, match="lr"):
            async with client.run("changes", params={"lr": 1}) as run:
                await run.params(lr=2)
        with pytest.raises(KeyboardInterrupt):
            async with client.run("interrupted") as run:
                raise KeyboardInterrupt
        assert (await client.runs.describe(run.uid)).state == "KILLED"


@pytest.mark.parametrize(
    ("step", "values", "message"),
    [
        (1, {"accuracy": 1, "loss": "much"}, "loss is 'much'; allowed is a number"),
        (1.5, {"loss": 1}, r"step is 1\.5; allowed is a whole number"),
        ("5", {"loss": 1}, "step is '5'; allowed is a whole number"),
        (True, {"loss": 1}, "step is True; allowed is a whole number"),
        (2**64, {"loss": 1}, "allowed is a whole number from -1000000000000000000 to"),
        ({"loss": 1}, {}, r"step is a dict; values are named, as in run\.log\(5, loss=0\.2\)"),
        (1, {"a:b$c": 1}, r"the name of a metric is 'a:b\$c'; allowed is 1 to 250 letters"),
        (1, {"": 1}, "the name of a metric is ''"),
        (1, {"n" * 300: 1}, "the name of a metric is 'nnn"),
    ],
)
async def test_what_cannot_be_logged_is_refused_at_once_and_takes_nothing_along(
    world: World,  # noqa: F811
    step: Any,
    values: dict[str, Any],
    message: str,
) -> None:
    key, endpoint = world.served.member.identity, world.other.endpoint
    async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
        with pytest.raises(InvalidRequest, match=message):
            async with client.run("wrong") as run:
                await run.log(0, loss=0.5)
                await run.log(step, **values)
                raise AssertionError("it was taken")
        found = await client.runs.describe(run.uid)
        assert (found.state, found.metrics) == ("FAILED", {"loss": 0.5})


async def test_steps_of_numpy_are_whole_numbers(world: World) -> None:  # noqa: F811
    key, endpoint = world.served.member.identity, world.other.endpoint
    async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
        async with client.run("numpy") as run:
            await run.log(np.int64(7), loss=np.float32(0.5))  # type: ignore[arg-type]
        points = [point async for point in client.runs.all_points(run.uid, "loss")]
        assert [(point.step, point.value) for point in points] == [(7, 0.5)]


async def test_a_thousand_values_that_the_server_refuses_are_lost_and_no_others(
    world: World,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logged_run, "_SEND_EVERY_S", 1000.0)
    key, endpoint = world.served.member.identity, world.other.endpoint
    async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
        _refuse_values(client, times=1)
        async with client.run("goes-on") as run:
            for step in range(999):
                await run.log(step, early=step)
            with pytest.raises(QuotaExceeded):
                await run.log(999, early=999)
            await run.log(1, late=0.5)
        found = await client.runs.describe(run.uid)
        assert (found.state, found.metrics) == ("FINISHED", {"late": 0.5})


async def test_a_run_whose_last_values_are_refused_has_failed(
    world: World,  # noqa: F811
) -> None:
    key, endpoint = world.served.member.identity, world.other.endpoint
    async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
        _refuse_values(client, times=1)
        with pytest.raises(QuotaExceeded):
            async with client.run("full") as run:
                await run.log(1, loss=0.5)
        found = await client.runs.describe(run.uid)
        assert (found.state, found.metrics) == ("FAILED", {})


def _refuse_values(client: AsyncCloudMlClient, *, times: int) -> None:
    log, refusals = client.runs.log, [QuotaExceeded("there are too many points")] * times

    async def refuse(uid: str, **content: Any) -> None:
        if content.get("metrics") and refusals:
            raise refusals.pop()
        await log(uid, **content)

    client.runs.log = refuse  # type: ignore[method-assign]


async def test_a_study_is_held_on_to(world: World) -> None:  # noqa: F811
    uri = "fds://cloudml/trainer.whl"
    client, job = world.other, TrainJob("any", "trainer.task", uri, check_uris=False)
    study = await asyncio.to_thread(
        client.create_study, "rates", job, {"lr": [1, 2]}, algorithm="grid", objective="loss:min"
    )
    assert (study.name, study.phase) == ("rates", "Running")
    assert await asyncio.to_thread(study.best) is None
    for option, message in {
        "objectives": r"create_study\(\) has no option 'objectives'; did you mean objective\?",
        "n_trials": r"create_study\(\) has no option 'n_trials'; did you mean max_trials\?",
    }.items():
        with pytest.raises(TypeError, match=message):
            client.create_study("other", job, {"lr": [1]}, **{option: 3})
    with pytest.raises(TypeError, match=r"a TrainJob is expected, such as TrainJob\(.*type str"):
        client.create_study("other", "slow", {"lr": [1]})  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"extend\(\) has no option 'timeout'; did you mean max_time"
    ):
        study.extend(3, timeout=5)
    with pytest.raises(InvalidRequest, match=r"memory_limitt .*; did you mean memory_limit\?"):
        client.clone_train_job("any", job_name="copy", memory_limitt="2G")
    with pytest.raises(WaitTimedOut, match=r"rates is still Running after 0\.01 s"):
        await asyncio.to_thread(study.wait, 0.01)
    with pytest.raises(AlreadyExists):
        await asyncio.to_thread(client.create_study, "rates", job, {"lr": [1]})
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.end(1, Phase.SUCCEEDED, 0.25)
    assert (await asyncio.to_thread(study.wait, 20)).phase == "Completed"
    best, trials = await asyncio.to_thread(study.best), await asyncio.to_thread(study.trials)
    assert best is not None
    assert (best.number, [trial.value for trial in trials]) == (1, [0.5, 0.25])
    same = await asyncio.to_thread(client.get_study, "rates")
    assert (same.uid, same.phase) == (study.uid, "Completed")
    assert [event.reason for event in await asyncio.to_thread(same.events)][-1] == "Completed"
    with pytest.raises(NotFound):
        await asyncio.to_thread(client.get_study, "none")

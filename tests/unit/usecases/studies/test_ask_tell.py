"""Ask and tell, through the API and both faces of the SDK."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.aio.studies import AsyncStudies
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from support.listening import listening
from support.platform import Served
from unit.usecases.studies.test_studies import World as Controlled

pytestmark = pytest.mark.anyio
_SPACE: dict[str, Any] = {"lr": {"min": 0.0, "max": 1.0}}


class World(Controlled):
    """A server with a controller of studies, and a client of each face."""

    def __init__(
        self, served: Served, client: AsyncCloudMlClient, other: CloudMlClient, endpoint: str
    ) -> None:
        super().__init__(served, client, endpoint)
        self.loops: AsyncStudies = client.studies
        self.other = other


@pytest.fixture
async def world() -> AsyncIterator[World]:
    served = Served()
    served.clock.now = datetime.now(UTC)
    async with listening(served) as port:
        key = served.member.identity
        endpoint = f"http://127.0.0.1:{port}"
        async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
            other = CloudMlClient(key.access_key, key.secret, endpoint)
            world = World(served, client, other, endpoint)
            world.lead()
            yield world
            await world.stop_leading()
            await served.platform.tuner.close()
            await world.tuner.close()
    served.close()


async def test_a_loop_finds_the_best(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, max_trials=8, seed=1)
    while (trial := await study.ask()) is not None:
        await study.tell(trial, (trial.parameters["lr"] - 0.3) ** 2)
    found = await world.until(lambda study: study.phase == "Completed")
    assert [one.number for one in found.trials] == list(range(8))
    assert {one.state for one in found.trials} == {"Completed"}
    assert found.best is not None
    assert (found.best.value or 1) < 0.02
    assert (found.local, found.job) == (True, {})
    reasons = [event.reason for event in await world.studies.events("rates")]
    assert reasons.count("TrialCompleted") == 8


async def test_a_pause_and_a_stop_count_from_their_answers_on(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random", max_trials=20)
    assert await study.ask() is not None
    await world.loops.pause("rates")
    assert await study.ask() is None
    await world.until(lambda study: study.phase == "Paused")
    await world.stop_leading()  # from here on nobody changes the phase
    await world.loops.resume("rates")
    assert await study.ask() is not None
    await world.loops.pause("rates")
    assert await study.ask() is None
    await world.loops.resume("rates")
    await world.loops.act("rates", "stop")
    assert await study.ask() is None
    assert len((await world.loops.describe("rates")).trials) == 2


class _Scalar:
    """A tensor without dimensions, as NumPy and PyTorch have it: iterating it is an error."""

    ndim = 0

    def __float__(self) -> float:
        return 0.25

    def __iter__(self) -> Iterator[float]:
        raise TypeError("iteration over a 0-d array")


async def test_a_value_that_is_no_number_is_refused_in_words(world: World) -> None:
    def loop() -> None:
        study = world.other.studies.local("rates", _SPACE, algorithm="random", max_trials=2)
        trial = study.ask()
        assert trial is not None
        wrong: Any
        for wrong in ("abc", "0.5", b"1", {"loss": 1}, object()):
            with pytest.raises(InvalidRequest, match=r"value is .*; allowed is a number, and of"):
                study.tell(trial, wrong)
            with pytest.raises(InvalidRequest, match=r"value is .*; allowed is a number, and of"):
                trial.report(1, wrong)
        with pytest.raises(InvalidRequest, match="values is 'a'; allowed is a number, and of"):
            study.tell(trial, ["a"])  # type: ignore[list-item]
        with pytest.raises(InvalidRequest, match=r"\[1.0, 2.0\]; allowed is one number, the loss"):
            study.tell(trial, [1, 2])
        assert study.best() is None
        study.tell(trial, _Scalar())  # type: ignore[arg-type]
        best = study.best()
        assert best is not None
        assert (best.number, best.value) == (0, 0.25)

    await asyncio.to_thread(loop)


async def test_time_is_limited_by_seconds_as_a_number_or_with_a_unit(world: World) -> None:
    await world.loops.local("rates", _SPACE, algorithm="random", max_time=90)
    assert (await world.studies.describe("rates")).max_time == "1m30s"
    assert (await world.loops.extend("rates", 1, max_time=7200)).max_time == "2h"
    assert (await world.loops.extend("rates", 1, max_time="5")).max_time == "5s"
    for wrong in (0, -1, True, 0.5, "soon"):
        with pytest.raises(InvalidRequest, match="max_time"):
            await world.loops.extend("rates", 1, max_time=wrong)  # type: ignore[arg-type]


async def test_the_blocking_face_asks_and_tells(world: World) -> None:
    def loop() -> None:
        study = world.other.studies.local("rates", _SPACE, algorithm="random", max_trials=2)
        while (trial := study.ask()) is not None:
            trial.report(1, trial.parameters["lr"])
            assert not trial.should_stop()
            study.tell(trial)

    await asyncio.to_thread(loop)
    found = await world.until(lambda study: study.phase == "Completed")
    assert all(one.value == one.parameters["lr"] and one.step == 1 for one in found.trials)


async def test_loops_at_a_time_get_trials_of_their_own(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="tpe", max_trials=30)

    async def loop() -> list[int]:
        numbers = []
        while (trial := await study.ask()) is not None:
            numbers.append(trial.number)
            await study.tell(trial, trial.parameters["lr"])
        return numbers

    first, second, third = await asyncio.gather(loop(), loop(), loop())
    assert sorted((*first, *second, *third)) == list(range(30))


@pytest.mark.parametrize("algorithm", ["random", "tpe"])
async def test_one_request_tells_a_trial_and_asks_for_the_next(
    world: World, algorithm: str
) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm=algorithm, max_trials=15, seed=1)
    trial, values = await study.ask(), dict[int, float]()
    while trial is not None:
        values[trial.number] = trial.parameters["lr"]
        trial = await study.tell_and_ask(trial, trial.parameters["lr"])
    found = await world.until(lambda study: study.phase == "Completed")
    assert {one.number: one.value for one in found.trials} == values
    assert list(values) == list(range(15))
    reasons = [event.reason for event in await world.studies.events("rates")]
    assert reasons.count("TrialCompleted") == 15

    apart = await world.loops.local("apart", _SPACE, algorithm=algorithm, max_trials=15, seed=1)
    while (trial := await apart.ask()) is not None:
        assert trial.parameters["lr"] == values[trial.number]
        await apart.tell(trial, trial.parameters["lr"])


async def test_the_blocking_face_tells_and_asks(world: World) -> None:
    def loop() -> None:
        study = world.other.studies.local("rates", _SPACE, algorithm="random", max_trials=3)
        first = study.ask()
        assert first is not None
        second = study.tell_and_ask(first, state="failed", message="out of memory")
        assert second is not None
        third = study.tell_and_ask(second, math.nan)
        assert third is not None
        third.report(4, 0.25)
        assert study.tell_and_ask(third) is None

    await asyncio.to_thread(loop)
    found = await world.until(lambda study: study.phase == "Completed")
    seen = [(one.state, one.value, one.message) for one in found.trials]
    assert seen == [
        ("Failed", None, "out of memory"),
        ("Infeasible", None, "its value is nan"),
        ("Completed", 0.25, ""),
    ]


async def test_an_end_that_is_refused_asks_for_no_trial(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random")
    trial = await study.ask()
    assert trial is not None
    with pytest.raises(NotFound, match="no trial 7"):
        await study.tell_and_ask(7, 1.0)
    with pytest.raises(InvalidRequest, match="value is missing"):
        await study.tell_and_ask(trial)
    with pytest.raises(InvalidRequest, match="completed, failed, infeasible"):
        await study.tell_and_ask(trial, 1.0, state="fine")
    member, path = world.served.member, "/api/v1/studies/rates"
    for tell, field in (
        ({"number": 0, "value": 1.0, "values": [1.0]}, "values"),
        ({"value": 1.0}, "tell.number"),
        ({"number": 0, "valu": 1.0}, "tell.valu"),
        (3, "tell"),
    ):
        answer = await member.call("POST", f"{path}/ask", {"key": "b", "tell": tell})
        assert (answer.status, answer.json()["field"]) == (400, field)
    assert [one.state for one in (await study.describe()).trials] == ["Running"]


async def test_an_end_is_noted_though_no_trial_is_left(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random", max_trials=2)
    first, last = await study.ask(), await study.ask()
    assert first is not None
    assert last is not None
    member, path = world.served.member, "/api/v1/studies/rates"
    request = {"key": "b", "tell": {"number": 1, "value": 0.5}}
    for _ in range(2):
        answer = (await member.call("POST", f"{path}/ask", request)).json()
        assert (answer["trial"], answer["reason"]) == (None, "all 2 trials have begun")
    assert (await study.describe()).trials[1].value == 0.5
    await world.studies.act("rates", "stop")
    await world.until(lambda study: study.phase == "Stopped")
    with pytest.raises(Conflict, match="trial 0 is Stopped already"):
        await study.tell_and_ask(first, 0.5)


async def test_an_end_does_not_wait_for_the_tuner(world: World) -> None:
    """Who waits for the tuner may be killed. What was told before stays."""
    study = await world.loops.local("rates", _SPACE, algorithm="gp", max_trials=20, seed=1)
    trial = await study.ask()
    assert trial is not None
    answered, requested = asyncio.Event(), asyncio.Event()
    tuner, suggest = world.served.platform.tuner, world.served.platform.tuner.suggest

    async def slow(*args: Any, **options: Any) -> Any:
        requested.set()
        await answered.wait()
        return await suggest(*args, **options)

    while trial.number < 9:
        trial = await study.tell_and_ask(trial, trial.parameters["lr"])
        assert trial is not None
    tuner.suggest = slow  # type: ignore[method-assign]
    waiting = asyncio.create_task(study.tell_and_ask(trial, 0.125))
    await requested.wait()
    assert (await study.describe()).trials[9].value == 0.125
    answered.set()
    following = await waiting
    assert following is not None
    assert following.number == 10


async def test_what_is_asked_and_told_again_happens_once(world: World) -> None:
    await world.loops.local("rates", _SPACE, algorithm="random")
    member, path = world.served.member, "/api/v1/studies/rates"
    first = await member.call("POST", f"{path}/ask", {"key": "a"})
    assert (await member.call("POST", f"{path}/ask", {"key": "a"})).json() == first.json()
    result = {"number": 0, "value": 0.5}
    for _ in range(2):
        assert (await member.call("POST", f"{path}/tell", result)).status == 200
    other = await member.call("POST", f"{path}/tell", {**result, "value": 0.25})
    assert (other.status, other.json()["field"]) == (409, "number")
    assert len((await world.studies.describe("rates")).trials) == 1
    both = {"key": "b", "tell": result}
    second = await member.call("POST", f"{path}/ask", both)
    assert (await member.call("POST", f"{path}/ask", both)).json() == second.json()
    both["tell"] = {**result, "value": 0.25}
    other = await member.call("POST", f"{path}/ask", both)
    assert (other.status, other.json()["field"]) == (409, "number")
    found = await world.studies.describe("rates")
    assert [one.state for one in found.trials] == ["Completed", "Running"]


async def test_a_loop_is_told_when_a_trial_does_badly(world: World) -> None:
    study = await world.loops.local(
        "rates", _SPACE, algorithm="random", stopper="asha", stopper_options={"factor": 2}
    )
    good, bad = await study.ask(), await study.ask()
    assert good is not None
    assert bad is not None
    await good.report(1, 0.1)
    await bad.report(1, 0.9)
    await bad.report(1, 0.01)
    assert (good.should_stop(), bad.should_stop()) == (False, True)
    await study.tell(bad)
    await study.tell(good, 0.05)
    found = await study.describe()
    assert [(one.state, one.value) for one in found.trials] == [
        ("Completed", 0.05),
        ("EarlyStopped", 0.9),
    ]


@pytest.mark.parametrize("step", [10**40, -(2**62)])
async def test_a_step_that_no_metric_may_have_is_refused(world: World, step: int) -> None:
    await world.loops.local("rates", _SPACE, algorithm="random")
    member, path = world.served.member, "/api/v1/studies/rates"
    await member.call("POST", f"{path}/ask", {"key": "a"})
    report = {"number": 0, "step": step, "value": 1}
    refused = await member.call("POST", f"{path}/report", report)
    assert (refused.status, refused.json()["field"]) == (400, "step")


async def test_trials_that_fail_and_values_that_are_none(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random", trials=[{"lr": 0.5}])
    first, second, third = [await study.ask() for _ in range(3)]
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.parameters == {"lr": 0.5}
    await study.tell(first, state="failed", message="out of memory")
    await study.tell(second, math.nan)
    with pytest.raises(InvalidRequest, match="value is missing"):
        await study.tell(third)
    with pytest.raises(InvalidRequest, match="completed, failed, infeasible"):
        await study.tell(third, 1.0, state="fine")
    with pytest.raises(NotFound, match="no trial 7"):
        await study.tell(7, 1.0)
    found = await study.describe()
    assert [one.state for one in found.trials] == ["Failed", "Infeasible", "Running"]
    assert found.trials[0].message == "out of memory"


async def test_a_study_that_was_stopped_gives_no_trial(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random")
    trial = await study.ask()
    assert trial is not None
    await world.studies.act("rates", "stop")
    await world.until(lambda study: study.phase == "Stopped")
    assert await study.ask() is None
    with pytest.raises(Conflict, match="trial 0 is Stopped already"):
        await study.tell(trial, 0.5)


async def test_a_server_that_ended_goes_on_with_the_same_trials(world: World) -> None:
    study = await world.loops.local("rates", _SPACE, algorithm="random", seed=3)
    first = await study.ask()
    assert first is not None
    await world.stop_leading()
    again = await world.loops.local("rates", _SPACE)
    second = await again.ask()
    assert second is not None
    assert (second.number, second.parameters != first.parameters) == (1, True)
    world.lead()
    await study.tell(first, 0.5)
    assert (await study.describe()).ended == 1


async def test_a_study_of_jobs_is_not_asked_and_a_local_one_has_no_job(world: World) -> None:
    job = {"module_name": "trainer.task", "trainer_uri": "fds://cloudml/trainer.whl"}
    member = world.served.member
    for request, field in (
        ({"name": "a", "space": _SPACE}, "job"),
        ({"name": "a", "space": _SPACE, "local": True, "job": job}, "job"),
    ):
        answer = await member.call("POST", "/api/v1/studies", request)
        assert (answer.status, answer.json()["field"]) == (400, field)
    world.served.platform.objects.put("cloudml", "trainer.whl", b"code")
    made = await member.call("POST", "/api/v1/studies", {"name": "b", "space": _SPACE, "job": job})
    assert made.status == 201
    answer = await member.call("POST", "/api/v1/studies/b/ask", {"key": "x"})
    assert (answer.status, answer.json()["field"]) == (409, "local")
    with pytest.raises(Conflict, match="are jobs"):
        await world.loops.local("b")
    await world.loops.local("c", _SPACE)
    for key in ("", "x" * 101):
        answer = await member.call("POST", "/api/v1/studies/c/ask", {"key": key})
        assert (answer.status, answer.json()["field"]) == (400, "key")


async def test_a_study_with_another_space_is_not_taken_for_that_of_its_name(world: World) -> None:
    space = {**_SPACE, "opt": ["adam", "sgd"]}
    first = await world.loops.local("rates", space, max_trials=3)
    trial = await first.ask()
    assert trial is not None
    assert str(trial).startswith("<trial 0 of rates: {'lr': ")
    for same in (space, {"lr": {"min": 0, "max": 1, "type": "double"}, "opt": ("adam", "sgd")}):
        assert (await world.loops.local("rates", same)).name == "rates"
    for other, objective, message in (
        (_SPACE, "loss:min", "its parameters are lr, opt"),
        ({**space, "lr": {"min": 0, "max": 2}}, "loss:min", "its space has lr"),
        ({**space, "opt": ["adam"]}, "loss:min", "its space has opt"),
        (space, "accuracy:max", "its objective is loss:min"),
        (space, "loss:maximize", "its objective is loss:min"),
    ):
        with pytest.raises(Conflict, match=message):
            await world.loops.local("rates", other, objective=objective)
    assert (await world.loops.local("rates")).name == "rates"
    with pytest.raises(Conflict, match="its objective is loss:min"):
        await world.loops.local("rates", objective="accuracy:max")

"""Questions to the tuner: each study has its own, and one that was asked ahead is of use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cloud_ml.controller.suggestions import Suggestions
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.spec import (
    Goal,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
)
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.tuning.base import Problem
from cloud_ml.tuning.tuner import Tuner

pytestmark = pytest.mark.anyio
_NOW = datetime(2026, 11, 25, tzinfo=UTC)


class Gated(Tuner):
    """A tuner that answers each study when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[int, asyncio.Event] = {}
        self.problems: list[Problem] = []
        self.fails = False

    async def suggest(
        self, algorithm: str, problem: Problem, *, org: str = "", study: str | None = None
    ) -> Parameters:
        self.problems.append(problem)
        await self.gates.setdefault(problem.seed, asyncio.Event()).wait()
        if self.fails:
            raise Unavailable("it is ill")
        return {"lr": len(problem.trials) / 100}


class World:
    def __init__(self) -> None:
        self.tuner = Gated()
        self.woken = asyncio.Queue[str]()
        self.suggestions = Suggestions(self.tuner, self.woken.put_nowait)

    def answer(self, seed: int) -> None:
        self.tuner.gates.setdefault(seed, asyncio.Event()).set()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    serving = asyncio.create_task(world.suggestions.serve())
    await asyncio.sleep(0)
    yield world
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def study(seed: int, *values: float | None) -> StudyRecord:
    """A study with trials of these values; one without a value runs."""
    trials = tuple(
        TrialStatus(
            number=number,
            parameters={"lr": number / 10},
            value=value,
            state=TrialState.RUNNING if value is None else TrialState.COMPLETED,
        )
        for number, value in enumerate(values)
    )
    spec = StudySpec(
        job=TrainJob("rates", "trainer.task", "fds://c/a.whl"),
        space=parse_space({"lr": {"min": 0.0, "max": 1.0}}),
        metric="loss", goal=Goal.MINIMIZE, algorithm="gp", max_trials=20, parallel=2,
        max_failed=3, seed=seed,
    )  # fmt: skip
    return Record(
        key=Key("study", "default", "rates", f"uid-{seed}"), revision=1, owner="tim",
        created_at=_NOW, updated_at=_NOW, generation=1, spec=spec, status=StudyStatus(trials=trials),
    )  # fmt: skip


_DONE = (0.5, 0.4, 0.3, 0.2)


async def test_a_slow_study_waits_alone(world: World) -> None:
    slow, quick = study(1, *_DONE), study(2, *_DONE)
    world.suggestions.ask(slow, ahead=False)
    world.suggestions.ask(slow, ahead=False)
    world.suggestions.ask(quick, ahead=False)
    world.answer(2)
    assert await world.woken.get() == "uid-2"
    assert world.suggestions.ready(quick)[4].parameters == {"lr": 0.04}
    assert world.suggestions.ready(slow) == {}
    assert [problem.seed for problem in world.tuner.problems] == [1, 2], "no question twice"


async def test_a_suggestion_made_ahead_counts_only_while_nothing_new_is_known(
    world: World,
) -> None:
    runs = study(1, *_DONE, None)
    world.answer(1)
    world.suggestions.ask(runs, ahead=True)
    await world.woken.get()
    assert world.suggestions.ready(runs)[5].parameters == {"lr": 0.05}
    ended = study(1, *_DONE, 0.1)
    assert world.suggestions.ready(ended) == {}, "it did not know the last value"
    world.suggestions.ask(ended, ahead=False)
    await world.woken.get()
    assert 5 in world.suggestions.ready(ended)
    assert len(world.tuner.problems) == 2
    assert world.suggestions.ready(study(1, *_DONE, 0.1, None)) == {}, "it was for another trial"


async def test_a_study_whose_question_takes_long_takes_what_was_made_ahead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_ml.controller.suggestions._PATIENCE_S", 0.0)
    runs, ended = study(1, *_DONE, None), study(1, *_DONE, 0.1)
    world.answer(1)
    world.suggestions.ask(runs, ahead=True)
    await world.woken.get()
    world.tuner.gates[1].clear()
    world.suggestions.ask(ended, ahead=False)
    assert await world.woken.get() == "uid-1", "it looks again when it has waited"
    assert 5 in world.suggestions.ready(ended)


async def test_a_tuner_that_fails_gives_an_even_point_and_the_reason(world: World) -> None:
    world.tuner.fails = True
    world.answer(1)
    record = study(1, *_DONE)
    world.suggestions.ask(record, ahead=False)
    await world.woken.get()
    suggestion = world.suggestions.ready(record)[4]
    assert suggestion.problem == "trial 4 is a point of qmc instead: it is ill"
    assert suggestion.parameters.keys() == {"lr"}


async def test_the_end_of_a_term_ends_its_questions() -> None:
    world = World()
    serving = asyncio.create_task(world.suggestions.serve())
    await asyncio.sleep(0)
    world.suggestions.ask(replace(study(1, *_DONE)), ahead=False)
    await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert world.woken.empty()

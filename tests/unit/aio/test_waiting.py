"""A wait outlives a server that is away for a while, on both faces, and ends when it stays away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.aio.jobs import handles as awaiting
from cloud_ml.errors import Conflict, NotFound, TransportError, Unavailable, WaitTimedOut
from cloud_ml.models.jobs.job import Job
from cloud_ml.sdk.jobs import handles as blocking
from cloud_ml.sdk.timeouts import PATIENCE
from support.fake_api import make_job


class Calls:
    """Answers with what it is given, in turn; the last is repeated."""

    def __init__(self, *answers: Job | Exception) -> None:
        self.answers = list(answers)
        self.attempts = 0

    def get(self, _: str, **__: Any) -> Job:
        self.attempts += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    naps: list[float] = []

    async def nap(delay_s: float) -> None:
        naps.append(delay_s)

    monkeypatch.setattr(blocking, "pause", naps.append)
    monkeypatch.setattr(awaiting, "pause", nap)
    return naps


@pytest.fixture(params=["blocking", "awaiting"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Calls a method of a handle of each face in turn."""
    job = make_job("a", phase="Running")

    def call(calls: Calls, method: str, *args: Any) -> Any:
        if request.param == "blocking":
            return getattr(blocking.JobHandle(calls, job), method)(*args)  # type: ignore[arg-type]

        class Awaited:
            async def get(self, name: str, **options: Any) -> Job:
                return calls.get(name, **options)

        return asyncio.run(getattr(awaiting.AsyncJobHandle(Awaited(), job), method)(*args))  # type: ignore[arg-type]

    return call


def test_a_server_that_comes_back_is_waited_for(ask: Any, naps: list[float]) -> None:
    away = [TransportError("down")] * 8 + [Unavailable("starting")]
    ended = make_job("a", phase="Succeeded", revision=2)
    assert ask(Calls(*away, ended), "wait").succeeded
    assert len(naps) == 9
    assert min(naps) >= 0.25


def test_a_server_that_stays_away_is_told(ask: Any, naps: list[float]) -> None:
    calls = Calls(TransportError("down"))
    with pytest.raises(TransportError):
        ask(calls, "wait")
    assert calls.attempts == PATIENCE.attempts == len(naps) + 1


def test_the_callers_limit_holds_while_the_server_is_away(ask: Any, naps: list[float]) -> None:
    with pytest.raises(WaitTimedOut):
        ask(Calls(*[TransportError("down")] * 3, make_job("a", phase="Running")), "wait", 0.01)
    assert all(nap <= 0.01 for nap in naps)


def test_a_deletion_is_waited_for_across_a_restart(ask: Any, naps: list[float]) -> None:
    ask(
        Calls(make_job("a", phase="Stopping"), TransportError("down"), NotFound("gone")),
        "wait_until_gone",
    )
    assert len(naps) == 1


def test_a_pause_is_waited_for(ask: Any, naps: list[float]) -> None:
    stopping = make_job("a", phase="Stopping", revision=2)
    paused = make_job("a", phase="Paused", revision=3)
    assert ask(Calls(stopping, TransportError("down"), paused), "wait_until_paused") == paused
    with pytest.raises(WaitTimedOut):
        ask(Calls(stopping), "wait_until_paused", 0.01)


@pytest.mark.parametrize(("phase", "attempt"), [("Succeeded", 1), ("Running", 2)])
def test_a_pause_that_does_not_come_is_told(
    ask: Any, naps: list[float], phase: str, attempt: int
) -> None:
    other = make_job("a", phase=phase, attempt=attempt)
    with pytest.raises(Conflict, match=f"a is not paused: it is {phase}"):
        ask(Calls(make_job("a", phase="Stopping"), other), "wait_until_paused")

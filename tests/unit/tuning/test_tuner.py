"""The tuner: a real process that starts when it is asked, and may die at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.errors import Unavailable
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.known_studies import ReceivedStudies
from cloud_ml.tuning.program import answer
from cloud_ml.tuning.tuner import Tuner

pytestmark = pytest.mark.anyio


def _problem() -> Problem:
    space = parse_space({"x": {"min": 0.0, "max": 1.0}, "o": ["a", "b"]})
    trials = [
        Observation(parameters={"x": n / 12, "o": "ab"[n % 2]}, outcome=Outcome.DONE, cost=(n - 4) ** 2)
        for n in range(12)
    ]  # fmt: skip
    return Problem(space=space, seed=1, number=12, trials=tuple(trials))


@pytest.fixture
async def tuner() -> AsyncIterator[Tuner]:
    tuner = Tuner(user=65_534 if os.geteuid() == 0 else 0)
    yield tuner
    await tuner.close()


async def test_it_starts_when_it_is_asked_and_has_no_rights(tuner: Tuner) -> None:
    assert tuner.pids == []
    first = await tuner.suggest("gp", _problem())
    (pid,) = tuner.pids
    status = Path(f"/proc/{pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    if os.geteuid() == 0:
        assert "Uid:\t65534\t65534" in status
    assert first == await tuner.suggest("gp", _problem())
    assert await tuner.suggest("tpe", _problem())


async def test_one_that_was_killed_is_replaced_and_says_the_same(tuner: Tuner) -> None:
    first = await tuner.suggest("gp", _problem())
    (killed,) = tuner.pids
    os.kill(killed, signal.SIGKILL)
    assert await tuner.suggest("gp", _problem()) == first
    assert tuner.pids
    assert killed not in tuner.pids


async def test_one_that_hangs_is_killed_and_the_next_question_has_an_answer() -> None:
    tuner = Tuner(answer_s=20)
    await tuner.suggest("tpe", _problem())
    (hanging,) = tuner.pids
    os.kill(hanging, signal.SIGSTOP)
    tuner._answer_s = 0.2
    with pytest.raises(Unavailable, match="no answer within"):
        await tuner.suggest("tpe", _problem())
    assert not Path(f"/proc/{hanging}").exists()
    tuner._answer_s = 60
    assert await tuner.suggest("tpe", _problem())
    await tuner.close()


async def test_one_that_is_slow_holds_up_no_other_question(tuner: Tuner) -> None:
    await tuner.suggest("tpe", _problem())
    (slow,) = tuner.pids
    os.kill(slow, signal.SIGSTOP)
    waiting = asyncio.create_task(tuner.suggest("gp", _problem()))
    await asyncio.sleep(0)
    assert await tuner.suggest("tpe", _problem())
    assert not waiting.done()
    os.kill(slow, signal.SIGCONT)
    assert await waiting
    assert len(tuner.pids) == 2


async def test_no_more_processes_run_than_may() -> None:
    tuner = Tuner(processes=2)
    answers = await asyncio.gather(
        *[tuner.suggest("tpe", _problem(), org=f"org-{n}") for n in range(5)]
    )
    assert answers == [answers[0]] * 5
    assert len(tuner.pids) == 2
    await tuner.close()
    assert tuner.pids == []


async def test_samplers_of_optuna_start_no_more_processes_than_may() -> None:
    tuner = Tuner(processes=2)
    for algorithm in ("tpe", "optuna:RandomSampler", "tpe"):
        calls = [tuner.suggest(algorithm, _problem(), org=org) for org in ("red", "blue")]
        await asyncio.gather(*calls)
        assert len(tuner.pids) == 2
    await tuner.close()


async def test_slow_questions_of_one_organisation_leave_a_process_to_others() -> None:
    tuner = Tuner(processes=2)
    await asyncio.gather(*[tuner.suggest("tpe", _problem(), org="red") for _ in range(3)])
    slow = tuner.pids
    for pid in slow:
        os.kill(pid, signal.SIGSTOP)
    calls = [asyncio.create_task(tuner.suggest("gp", _problem(), org="red")) for _ in range(3)]
    await asyncio.sleep(0)  # they are all in line
    assert await tuner.suggest("tpe", _problem(), org="blue")
    assert not any(one.done() for one in calls)
    for pid in slow:
        os.kill(pid, signal.SIGCONT)
    assert await asyncio.gather(*calls)
    await tuner.close()


async def test_an_organisation_that_asks_much_holds_up_no_other_one() -> None:
    tuner, order = Tuner(processes=1), []

    async def ask(org: str, what: str) -> None:
        if what == "suggest":
            await tuner.suggest("tpe", _problem(), org=org)
        else:
            await tuner.importance(_problem(), org=org)
        order.append(org)

    for what in ("suggest", "importance"):
        order.clear()
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(ask("red", what))
            await asyncio.sleep(0)  # they are all in line
            group.create_task(ask("blue", what))
        assert order.index("blue") == 1  # after the one that had begun
    await tuner.close()


async def test_who_asks_and_goes_takes_no_answer_of_others(tuner: Tuner) -> None:
    asking = asyncio.create_task(tuner.suggest("gp", _problem()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await tuner.suggest("tpe", _problem())).keys() == {"x", "o"}


async def test_it_ends_when_nobody_asks() -> None:
    tuner = Tuner(idle_s=0.05)
    await tuner.suggest("tpe", _problem())
    async with asyncio.timeout(30):
        while tuner.pids:
            await asyncio.sleep(0.01)
    assert await tuner.suggest("tpe", _problem())
    await tuner.close()


async def test_one_that_does_not_start_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloud_ml.tuning.tuner_process.MODULE", "cloud_ml.tuning.none")
    with pytest.raises(Unavailable, match=r"the tuner ended twice: .*No module named"):
        await Tuner().suggest("gp", _problem())


def test_a_request_that_cannot_be_answered_has_a_reason() -> None:
    assert answer({"algorithm": "magic", "problem": {}}, ReceivedStudies())["error"].startswith(
        "KeyError"
    )

"""What is said of a task that ends when its gang is over."""

from __future__ import annotations

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.processes.launch import Exit
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.engines.local.supervisor.gang_end import GangEnd, ends_by

SIGKILL, SIGTERM = 9, 15
STOPPED = Verdict(Reason.CANCELLED, "stopped on request")
OVER = Verdict(Reason.TIME_LIMIT, "TimeLimitExceeded: the limit of 2 s is over")
KILLED = Verdict(Reason.SIGNALED, "master-0 was killed by signal SIGTERM")
CUT_OFF = Verdict(Reason.START_FAILED, "master-0 could not be started")
BAD = Verdict(Reason.NON_ZERO_EXIT, "master-0 exited with code 3")


def end_of(verdict: Verdict | None, ended_by: str = "", *, several: bool = False) -> GangEnd:
    return GangEnd(several=several, is_array=False, verdict=verdict, ended_by=ended_by)


@pytest.mark.parametrize("verdict", [STOPPED, OVER])
@pytest.mark.parametrize("ended", [KILLED, BAD, CUT_OFF])
def test_a_task_that_the_server_has_ended_was_stopped(verdict: Verdict, ended: Verdict) -> None:
    result = end_of(verdict).stopped("master-0", ended, by_server=True)
    assert result == Verdict(Reason.CANCELLED, "stopped with the whole job")


@pytest.mark.parametrize("ended", [KILLED, BAD, CUT_OFF])
def test_a_single_task_that_fails_by_itself_meanwhile_has_its_own_end(ended: Verdict) -> None:
    assert end_of(STOPPED).stopped("master-0", ended, by_server=False) is None


def test_one_that_runs_out_of_memory_meanwhile_has_its_own_end() -> None:
    ended = Verdict(Reason.OUT_OF_MEMORY, "more than 50M")
    assert end_of(STOPPED).stopped("master-0", ended, by_server=True) is None


def test_nothing_is_stopped_before_the_gang_is_over() -> None:
    assert end_of(None).stopped("master-0", KILLED, by_server=False) is None
    assert end_of(BAD, "master-0").stopped("master-0", KILLED, by_server=True) is None


def test_a_task_that_ends_because_another_one_did_names_it() -> None:
    end = end_of(BAD, "master-0", several=True)
    result = end.stopped("worker-0", KILLED, by_server=True)
    assert result == Verdict(Reason.CANCELLED, "stopped because master-0 had ended")


@pytest.mark.parametrize(
    ("end", "ours"),
    [
        (Exit(None, SIGTERM), True),
        (Exit(128 + SIGTERM, None), True),
        (Exit(None, SIGKILL), False),
        (Exit(128 + SIGKILL, None), False),
        (Exit(3, None), False),
        (Exit(0, None), False),
    ],
)
def test_an_end_by_a_signal_is_known_also_as_the_code_of_a_shell(end: Exit, ours: bool) -> None:
    assert ends_by(end, {SIGTERM}) is ours
    assert not ends_by(end, set())

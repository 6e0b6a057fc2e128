"""The ports of jobs of several tasks."""

from __future__ import annotations

import pytest

from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.errors import TryAgain
from cloud_ml.settings.gateway import ports_of


def test_no_two_jobs_share_a_port() -> None:
    ports = TaskPorts([range(10, 13), range(20, 22)])
    assert ports.take("a", 2) == (10, 11)
    assert ports.take("b", 2) == (12, 20)
    assert ports.take("a", 2) == (10, 11)  # asked again, it has them
    assert ports.taken == 4
    ports.free("a")
    ports.free("b")
    assert ports.taken == 0


def test_free_ports_are_given_out_again_last() -> None:
    ports = TaskPorts([range(10, 14)])
    ports.take("a", 2)
    ports.free("a")
    assert ports.take("b", 2) == (12, 13)
    assert ports.take("c", 2) == (10, 11)


def test_what_is_free_for_the_longest_time_is_given_out_first() -> None:
    ports = TaskPorts([range(10, 16)])
    for uid in ("a", "b", "c"):
        ports.take(uid, 2)
    for uid in ("b", "c", "a"):
        ports.free(uid)
    assert ports.take("d", 3) == (12, 13, 14)
    ports.free("d")
    assert ports.take("e", 6) == (15, 10, 11, 12, 13, 14)


def test_what_was_committed_is_taken() -> None:
    ports = TaskPorts([range(10, 14)])
    ports.note("old", (10, 12))
    ports.note("old", (10, 12))
    assert ports.take("new", 2) == (11, 13)
    ports.note("old", ())
    assert ports.take("newer", 2) == (10, 12)


def test_too_few_ports_are_waited_for() -> None:
    ports = TaskPorts([range(10, 13)])
    ports.take("a", 2)
    with pytest.raises(TryAgain, match=r"2 ports are needed, and 1 of engine\.ports"):
        ports.take("b", 2)
    ports.free("a")
    assert len(ports.take("b", 3)) == 3


def test_the_next_attempt_has_others() -> None:
    ports = TaskPorts([range(10, 15)])
    first = ports.take("a", 2)
    ports.note("a", first)
    assert ports.take("a", 2, last=first) == (12, 13)
    assert ports.take("a", 2, last=first) == (12, 13)  # asked again before it has begun
    ports.note("a", first)  # as it was before
    assert ports.take("b", 1) == (14,)
    with pytest.raises(TryAgain):
        ports.take("c", 1)
    ports.note("a", (12, 13))
    assert ports.take("c", 2) == (10, 11)


def test_the_next_attempt_has_others_also_after_the_server_was_started_anew() -> None:
    assert TaskPorts([range(10, 15)]).take("a", 2, last=(10, 12)) == (11, 13)


def test_the_next_attempt_has_the_same_where_there_are_no_others() -> None:
    ports = TaskPorts([range(10, 13)])
    ports.note("a", (10, 11))
    assert ports.take("a", 2, last=(10, 11)) == (12, 10)
    ports.note("a", (12, 10))
    assert ports.take("b", 1) == (11,)


def test_a_job_that_keeps_its_ports_has_the_same_in_all_attempts() -> None:
    ports = TaskPorts([range(10, 15)])
    first = ports.take("a", 2)
    ports.note("a", first)
    assert ports.take("a", 2, last=first, keeps=True) == first
    assert TaskPorts([range(10, 15)]).take("a", 2, last=(12, 11), keeps=True) == (12, 11)


def test_a_job_that_keeps_its_ports_gets_one_more_for_one_more_task() -> None:
    ports = TaskPorts([range(10, 15)])
    ports.note("a", (11, 10))
    ports.note("b", (12,))
    assert ports.take("a", 3, last=(11, 10), keeps=True) == (11, 10, 13)


def test_ports_that_others_have_by_now_cannot_be_kept() -> None:
    ports = TaskPorts([range(10, 15)])
    ports.note("b", (11,))
    assert ports.take("a", 2, last=(10, 11), keeps=True) == (10, 12)


def test_ports_of_the_last_attempt_that_others_have_by_now() -> None:
    ports = TaskPorts([range(20, 22)])  # the operator has changed the range
    ports.note("b", (20,))
    assert ports.take("a", 1, last=(20,)) == (21,)
    with pytest.raises(TryAgain, match="2 ports are needed, and 0 of"):
        ports.take("c", 2, last=(10, 20))


def test_a_job_of_one_process_needs_none() -> None:
    assert TaskPorts().take("a", 0) == ()


@pytest.mark.parametrize("text", ["10-13 10-13", "10-12, 11-13", "13, 10-13", "10-11, 12-13, 12"])
def test_ports_that_the_operator_names_twice_are_given_out_once(text: str) -> None:
    ports = TaskPorts(ports_of(text))
    assert ports.take("a", 3) == (10, 11, 12)
    with pytest.raises(TryAgain):
        ports.take("b", 2)

"""Which tasks hang."""

from __future__ import annotations

import math

import pytest

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.gangs import NO_RESTARTS, TaskRestarts
from cloud_ml.domain.workloads.hangs import (
    Activity,
    TaskLife,
    hang_due_at,
    hung_tasks,
    restarts_after_hang,
)


def life(name: str, alive_at: float, *, running: bool = True, over: bool = False) -> TaskLife:
    role = name.partition("-")[0]
    return TaskLife(name, role, Activity(alive_at, alive_at), running=running, over=over)


def test_a_task_hangs_after_the_time_and_not_before() -> None:
    one = [life("master-0", 5.0)]
    assert hang_due_at(one, 10.0) == 15.0
    assert hung_tasks(one, 10.0, 14.9) == ()
    assert hung_tasks(one, 10.0, 15.0) == ("master-0",)


@pytest.mark.parametrize(
    ("tasks", "hung"),
    [
        ([life("worker-0", 0.0), life("worker-1", 0.0)], ("worker-0", "worker-1")),
        ([life("worker-0", 0.0), life("worker-1", 50.0)], ()),
        ([life("worker-0", 0.0), life("ps-0", 99.0)], ("worker-0",)),
        ([life("worker-0", 0.0), life("evaluator-0", 99.0)], ("worker-0",)),
        ([life("ps-0", 0.0)], ()),
        ([life("worker-0", 0.0), life("worker-1", 40.0, running=False, over=True)], ("worker-0",)),
        ([life("worker-0", 0.0), life("worker-1", 99.0, running=False, over=True)], ()),
        ([life("worker-0", 0.0), life("worker-1", 0.0, running=False)], ()),
        ([life("worker-0", 0.0, running=False, over=True), life("ps-0", 0.0)], ()),
        ([], ()),
    ],
)
def test_a_gang_hangs_only_as_a_whole(tasks: list[TaskLife], hung: tuple[str, ...]) -> None:
    assert hung_tasks(tasks, 60.0, 100.0) == hung


@pytest.mark.parametrize(
    ("cores", "every_s", "alive"),
    [
        (1.0, 5.0, True),
        (0.02, 5.0, True),
        (0.02, 1.0, True),
        (0.005, 5.0, False),
        (0.005, 1.0, False),
        (0.005, 0.1, False),
        (0.0, 5.0, False),
    ],
)
def test_who_uses_a_core_hardly_at_all_is_idle(cores: float, every_s: float, alive: bool) -> None:
    """Also where processor time is counted in ticks of 10 ms."""
    activity, now = Activity(0.0, 0.0), 0.0
    for _ in range(1 + int(60 / every_s)):
        now += every_s
        activity = activity.after_look(now, int(now * cores * 100) / 100)
    assert (activity.alive_at > 50.0) == alive
    assert activity.spoken(now).alive_at == now


def test_a_burst_after_a_long_silence_is_seen_at_the_next_look() -> None:
    silent = Activity(0.0, 0.0).after_look(1000.0, 0.0)
    assert silent.alive_at == 0.0
    assert silent.after_look(1005.0, 2.0).alive_at == 1005.0


def test_processor_time_does_not_count_where_busy_loops_wait() -> None:
    spins = Activity(0.0, 0.0).after_look(5.0, 5.0, idle_cores=math.inf)
    assert (spins.alive_at, spins.looked_at, spins.cpu_seconds) == (0.0, 5.0, 5.0)
    assert spins.after_look(10.0, 10.0).alive_at == 10.0


@pytest.mark.parametrize(
    ("hung", "tasks", "able", "restarted"),
    [
        (("worker-0", "worker-1"), ("worker-0", "worker-1"), ("worker-0", "worker-1"), True),
        (("worker-0", "worker-1"), ("worker-0", "worker-1"), ("worker-0",), False),
        (("worker-0",), ("worker-0", "worker-1"), ("worker-0",), True),
        (("worker-0",), ("worker-0", "ps-0"), ("worker-0", "ps-0"), False),
        (("worker-0",), ("worker-0", "evaluator-0"), ("worker-0",), True),
    ],
)
def test_tasks_that_hang_together_start_again_alone_if_that_can_help(
    hung: tuple[str, ...], tasks: tuple[str, ...], able: tuple[str, ...], restarted: bool
) -> None:
    processes = [ObservedProcess(name.partition("-")[0], int(name[-1]), True) for name in tasks]
    restarts = TaskRestarts(able, most=5)
    found = restarts_after_hang(processes, hung, restarts)
    assert found == (restarts if restarted else NO_RESTARTS)


def test_tasks_that_wait_for_no_other_hang_each_for_itself() -> None:
    lives = [
        TaskLife("task-0", "task", Activity(100.0, 100.0)),
        TaskLife("task-1", "task", Activity(40.0, 100.0)),
        TaskLife("task-2", "task", Activity(0.0, 0.0), running=False),
        TaskLife("task-3", "task", Activity(0.0, 0.0), running=False, over=True),
    ]
    assert hang_due_at(lives, 60.0, independent=True) == 100.0
    assert hung_tasks(lives, 60.0, 99.0, independent=True) == ()
    assert hung_tasks(lives, 60.0, 101.0, independent=True) == ("task-1",)
    assert hang_due_at(lives[2:], 60.0, independent=True) is None

"""Many tasks of which a few live at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import ALL_TASKS
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import (
    ArrayTasks,
    ProcessPlan,
)
from cloud_ml.testing.engine.looking import (
    gang_of,
    log_of,
    most_at_once,
    new_key,
    several,
    until_over,
    until_reached,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class ArrayContract(Programs):
    """Many tasks of which a few live at a time."""

    async def test_the_next_process_starts_when_one_has_ended(self, engine: Engine) -> None:
        gang = several(*[self.printing(f"task {number}") for number in range(5)])
        names = tuple(plan.name for plan in gang.processes)
        await engine.ensure(replace(gang, completes=names, parallel=2))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert [one.name for one in over.processes] == list(names)
        assert {one.reason for one in over.processes} == {Reason.COMPLETED}
        assert most_at_once(over) <= 2
        for number, name in enumerate(names):
            assert await log_of(engine, gang.key, name) == f"task {number}\n".encode()
        merged = (await log_of(engine, gang.key, ALL_TASKS)).decode().splitlines()
        assert sorted(merged) == [f"[worker-{number}] task {number}" for number in range(5)]

    async def test_a_gang_is_stopped_while_processes_wait_for_a_place(self, engine: Engine) -> None:
        gang = replace(several(*[self.waiting()] * 3), parallel=1)
        await engine.ensure(gang)
        seen = await until_reached(engine, gang.key, GangState.RUNNING)
        assert [(one.running, one.reason) for one in seen.processes] == [
            (True, None),
            (False, None),
            (False, None),
        ]
        await engine.stop(gang.key, grace_s=5.0)
        over = await until_over(engine, gang.key)
        assert [one.reason for one in over.processes] == [Reason.CANCELLED] * 3
        assert [one.started_at is None for one in over.processes] == [False, True, True]
        streams = await engine.log_streams(gang.key.job_uid)
        assert (1, "worker-1") not in streams

    async def test_some_processes_may_fail(self, engine: Engine) -> None:
        gang = several(self.exiting(3), self.printing("a"), self.exiting(4), self.printing("b"))
        names = tuple(plan.name for plan in gang.processes)
        gang = replace(gang, completes=names, parallel=1)
        await engine.ensure(replace(gang, max_failed=2))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert "2 of 4 tasks failed: worker-0, worker-2" in over.message
        assert [one.exit_code for one in over.processes] == [3, 0, 4, 0]
        fewer = replace(gang, key=new_key(), max_failed=1)
        await engine.ensure(fewer)
        over = await until_over(engine, fewer.key)
        assert over.reason is Reason.NON_ZERO_EXIT
        assert over.message.startswith("worker-2 exited with code 4")
        assert over.processes[3].reason is Reason.CANCELLED
        assert over.processes[3].started_at is None

    async def test_a_failed_process_keeps_its_place(self, engine: Engine) -> None:
        gang = several(self.exiting(3), self.printing("a"))
        names = ("worker-0", "worker-1")
        gang = replace(gang, completes=names, parallel=1, max_failed=1)
        await engine.ensure(replace(gang, restarts=TaskRestarts(names, most=1)))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        first, second = over.processes
        assert (first.restarts, second.restarts) == (int(self.restarts_tasks), 0)
        assert first.exit_code == 3
        assert second.reason is Reason.COMPLETED

    async def test_a_large_array_runs_a_few_at_a_time(self, engine: Engine) -> None:
        indices = (*range(0, 40, 2), 100)
        every = ProcessPlan("task", 0, self.printing("done"), {"FOLDER": "/tmp"})
        tasks = ArrayTasks(indices, ("INDEX",), ("FOLDER",))
        gang = replace(gang_of(every.command), processes=(every,), array=tasks, parallel=4)
        names = tuple(f"task-{index}" for index in indices)
        last = gang.tasks[-1]
        assert dict(last.environment) == {"INDEX": "100", "FOLDER": "/tmp/task-100"}
        await engine.ensure(replace(gang, completes=names))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert tuple(one.name for one in over.processes) == names
        assert most_at_once(over) <= 4
        assert await log_of(engine, gang.key, "task-100") == b"done\n"

    async def test_an_array_of_one_task_is_called_like_one_of_many(self, engine: Engine) -> None:
        every = ProcessPlan("task", 0, self.printing("done"))
        gang = replace(gang_of(every.command), processes=(every,), array=ArrayTasks((7,)))
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert await log_of(engine, gang.key, "task-7") == b"done\n"
        assert await log_of(engine, gang.key, ALL_TASKS) == b"[task-7] done\n"

    async def test_an_array_of_which_nothing_is_left_completes(self, engine: Engine) -> None:
        gang = replace(gang_of(self.printing("never")), array=ArrayTasks(()))
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert over.processes == ()

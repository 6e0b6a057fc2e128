"""Signs of life: progress, stacks, and the end of what gives none."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cloud_ml.domain.metrics.reports import read_reports
from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import MetricFiles, MetricReports, Reports, Stacks
from cloud_ml.engines.base import Engine
from cloud_ml.testing.engine.looking import (
    gang_of,
    log_of,
    several,
    until_named,
    until_over,
    until_reached,
    wait_for_words,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class HangContract(Programs):
    """Signs of life: progress, stacks, and the end of what gives none."""

    async def test_changes_name_what_lives_and_what_happens(self, engine: Engine) -> None:
        living = gang_of(self.waiting())
        await engine.ensure(living)
        await until_reached(engine, living.key, GangState.RUNNING)
        changes = engine.changes()
        await until_named(changes, living.key.job_uid)
        later = gang_of(self.printing("x"))
        await engine.ensure(later)
        await until_named(changes, later.key.job_uid)
        await engine.stop(living.key, grace_s=0.0)
        await until_over(engine, living.key)

    async def test_stacks_are_shown_and_the_process_runs_on(self, engine: Engine) -> None:
        assert isinstance(engine, Stacks)
        gang = several(self.hanging(), self.waiting())
        await engine.ensure(gang)
        await wait_for_words(engine, gang.key, "worker-0", b"ready")
        await engine.dump_stacks(gang.key, ["worker-0", "worker-1", "worker-9"])
        await wait_for_words(engine, gang.key, "worker-0", b"stacks of worker-0")
        await wait_for_words(engine, gang.key, "worker-0", b" in hang")
        await wait_for_words(engine, gang.key, "worker-1", b"worker-1")
        seen = await until_reached(engine, gang.key, GangState.RUNNING)
        assert [one.running for one in seen.processes] == [True, True]
        await engine.stop(gang.key, grace_s=0.0)
        await until_over(engine, gang.key)
        await engine.dump_stacks(gang.key, ["worker-0"])

    async def test_a_process_without_a_sign_of_life_is_ended_and_says_where_it_was(
        self, engine: Engine
    ) -> None:
        gang = replace(several(self.hanging(), self.hanging()), hang_s=1.0)
        variables = {"PYTHONFAULTHANDLER": "1"}
        plans = tuple(replace(plan, environment=variables) for plan in gang.processes)
        await engine.ensure(replace(gang, processes=plans))
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.HUNG)
        assert Reason.HUNG in [one.reason for one in over.processes]
        assert "SIGABRT" in [one.signal for one in over.processes]
        for one in over.processes:
            if one.reason is Reason.HUNG:
                assert b" in hang" in await log_of(engine, gang.key, one.name)

    async def test_a_task_that_waits_for_one_that_works_does_not_hang(self, engine: Engine) -> None:
        gang = several(self.talking(), self.waiting())
        await engine.ensure(replace(gang, hang_s=1.0))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message

    async def test_a_process_in_a_busy_loop_hangs_where_they_wait_so_and_one_has_reported(
        self, engine: Engine
    ) -> None:
        for commands, busy_waits, reason in (
            ((self.computing_after(7), self.waiting()), True, Reason.HUNG),
            ((self.computing(), self.waiting()), True, Reason.COMPLETED),
            ((self.computing_after(7), self.waiting()), False, Reason.COMPLETED),
        ):
            gang = replace(several(*commands), hang_s=1.0, busy_waits=busy_waits)
            await engine.ensure(replace(gang, completes=("worker-0",)))
            assert (await until_over(engine, gang.key)).reason is reason

    async def test_a_parameter_server_keeps_no_gang_from_hanging(self, engine: Engine) -> None:
        gang = several(self.waiting(), self.talking())
        plans = (gang.processes[0], replace(gang.processes[1], role="ps", index=0))
        await engine.ensure(replace(gang, processes=plans, hang_s=1.0))
        over = await until_over(engine, gang.key)
        assert over.reason is Reason.HUNG
        assert over.processes[0].reason is Reason.HUNG

    async def test_a_task_that_hung_starts_again_alone(self, engine: Engine) -> None:
        gang = replace(several(self.waiting()), hang_s=1.0)
        await engine.ensure(replace(gang, restarts=TaskRestarts(("worker-0",), most=1)))
        over = await until_over(engine, gang.key)
        assert over.reason is Reason.HUNG
        assert over.processes[0].restarts == int(self.restarts_tasks)

    async def test_none_of_those_that_hang_starts_again_alone_if_that_cannot_help(
        self, engine: Engine
    ) -> None:
        gang = several(self.waiting(), self.waiting())
        first, second = gang.processes
        served = (first, replace(second, role="ps", index=0))
        for plans, restarted in (
            (gang.processes, ("worker-0",)),
            (served, ("worker-0", "ps-0")),
        ):
            one = replace(several(self.waiting()), processes=plans, hang_s=1.0)
            await engine.ensure(replace(one, restarts=TaskRestarts(restarted, most=5)))
            over = await until_over(engine, one.key)
            assert over.reason is Reason.HUNG
            assert [task.restarts for task in over.processes] == [0, 0]
            assert "start again" not in over.message

    async def test_what_processes_report_is_told(self, engine: Engine) -> None:
        assert isinstance(engine, Reports)
        assert isinstance(engine, MetricReports)
        for gang in (
            gang_of(self.reporting(7)),
            several(self.reporting(6), self.reporting(7), self.waiting()),
        ):
            await engine.ensure(gang)
            steps = {}
            for plan in gang.processes[:2]:
                await wait_for_words(engine, gang.key, plan.name, b"ready")
                data = engine.read_metrics(gang.key, plan.name, "", 0, end=10**6)
                assert data is not None
                (value,) = read_reports(data.data, full=False).values
                assert (value.name, value.value) == ("loss", 0.5)
            names = [plan.name for plan in gang.processes]
            for name, progress in (await engine.progress(gang.key, names)).items():
                steps[name] = progress.step
            assert steps in ({"master-0": 7}, {"worker-0": 6, "worker-1": 7})
            await engine.stop(gang.key, grace_s=5.0)
            over = await until_over(engine, gang.key)
            assert over.milestone.step == 7

    async def test_files_in_which_points_may_be_are_lent(self, engine: Engine) -> None:
        assert isinstance(engine, MetricFiles)
        gang = gang_of(self.reporting(7))
        uid, (plan,) = gang.key.job_uid, gang.processes
        await engine.ensure(gang)
        await wait_for_words(engine, gang.key, plan.name, b"ready")
        found = engine.event_files(uid, [], datetime.fromtimestamp(0, UTC))
        (file,) = found.files
        assert (file.below, file.size) == ("logs/events.out.tfevents.1", len(b"events"))
        with engine.open_event_file(uid, [], file.path) as descriptor:
            assert descriptor is not None
            assert os.pread(descriptor, 100, 0) == b"events"
        for path in (f"{file.path}2", f"{file.path}/..", "elsewhere/events", ""):
            with engine.open_event_file(uid, [], path) as descriptor:
                assert descriptor is None
        with engine.open_log(gang.key, plan.name, 0) as part:
            assert part is not None
            assert (part.position, part.last) == (0, True)
            assert b"ready" in os.pread(part.descriptor, part.left, part.offset)
            end = part.position + part.left
        with engine.open_log(gang.key, plan.name, end) as part:
            assert part is None
        with engine.open_log(gang.key, plan.name, 1) as part:
            assert part is not None
            assert (part.position, part.left) == (1, end - 1)
        await engine.stop(gang.key, grace_s=0.0)
        await until_over(engine, gang.key)

    async def test_files_that_change_are_told_once_for_each_time_that_they_are_watched(
        self, engine: Engine
    ) -> None:
        assert isinstance(engine, MetricFiles)
        gang = gang_of(self.appending())
        uid, (plan,) = gang.key.job_uid, gang.processes
        await engine.ensure(gang)
        await wait_for_words(engine, gang.key, plan.name, b"ready")
        changes = engine.file_changes()
        for _ in range(2):
            found = engine.event_files(uid, [], datetime.fromtimestamp(0, UTC))
            grown = [file.path for file in found.files]  # none yet, perhaps
            engine.watch_files(uid, [], recent=found.recent, grown=grown, log=gang.key)
            await until_named(changes, uid)
        engine.unwatch_files(uid)
        engine.unwatch_files(uid)
        await engine.stop(gang.key, grace_s=0.0)
        await until_over(engine, gang.key)

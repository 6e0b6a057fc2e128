"""The life of an attempt: once, to its end, and no further."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import ALL_TASKS
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import (
    GangKey,
)
from cloud_ml.errors import Conflict
from cloud_ml.testing.engine.looking import (
    LIMIT_S,
    collect,
    gang_of,
    log_of,
    new_key,
    several,
    until_over,
    until_reached,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class AttemptContract(Programs):
    """The life of an attempt: once, to its end, and no further."""

    async def test_a_gang_runs_to_a_good_end(self, engine: Engine) -> None:
        gang = gang_of(self.printing("hello"))
        await engine.ensure(gang)
        seen = await until_over(engine, gang.key)
        assert (seen.state, seen.reason) == (GangState.EXITED, Reason.COMPLETED)
        assert seen.succeeded
        assert seen.unsaved_files.sentence == ""
        assert await log_of(engine, gang.key) == b"hello\n"

    async def test_a_bad_end_names_its_code(self, engine: Engine) -> None:
        gang = gang_of(self.exiting(3))
        await engine.ensure(gang)
        seen = await until_over(engine, gang.key)
        assert seen.reason is Reason.NON_ZERO_EXIT
        assert seen.processes[0].exit_code == 3
        assert "3" in seen.message

    async def test_a_process_finds_its_parameters_in_a_file(self, engine: Engine) -> None:
        gang, text = gang_of(self.showing_parameters()), '{"lr": 0.1, "name": "ä"}'
        plan = replace(gang.first, environment={"CLOUDML_PARAMETERS": text})
        gang = replace(gang, processes=(plan,))
        await engine.ensure(gang)
        assert (await until_over(engine, gang.key)).state is GangState.EXITED
        assert await log_of(engine, gang.key) == text.encode()

    async def test_ensure_twice_starts_one_gang(self, engine: Engine) -> None:
        gang = gang_of(self.printing("once"))
        await engine.ensure(gang)
        await engine.ensure(gang)
        await until_over(engine, gang.key)
        await engine.ensure(gang)
        assert await log_of(engine, gang.key) == b"once\n"

    async def test_two_engines_start_one_gang(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = gang_of(self.printing("once"))
        other = await reopen()
        await asyncio.gather(*(e.ensure(gang) for e in (engine, other, engine, other)))
        await until_over(engine, gang.key)
        assert await log_of(other, gang.key) == b"once\n"

    async def test_a_new_engine_object_sees_what_the_old_one_started(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = gang_of(self.waiting())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        other = await reopen()
        assert [seen.state for seen in await other.observed(gang.key.job_uid)] == [
            GangState.RUNNING
        ]
        await other.stop(gang.key, grace_s=5.0)
        assert (await until_over(engine, gang.key)).state is GangState.EXITED

    async def test_stop_ends_a_running_gang(self, engine: Engine) -> None:
        gang = gang_of(self.waiting())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=5.0)
        seen = await until_over(engine, gang.key)
        assert seen.reason is Reason.CANCELLED
        await engine.stop(gang.key, grace_s=5.0)

    async def test_a_second_stop_without_grace_ends_the_stubborn(self, engine: Engine) -> None:
        gang = gang_of(self.stubborn())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=300.0)
        assert not (await engine.observed(gang.key.job_uid))[0].state.over
        await engine.stop(gang.key, grace_s=0.0)
        assert (await until_over(engine, gang.key)).reason is Reason.CANCELLED

    async def test_a_second_stop_with_less_grace_shortens_the_first(self, engine: Engine) -> None:
        gang = gang_of(self.stubborn())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=300.0)
        await engine.stop(gang.key, grace_s=0.2)
        await engine.stop(gang.key, grace_s=200.0)
        assert (await until_over(engine, gang.key)).reason is Reason.CANCELLED

    async def test_a_tombstone_keeps_a_gang_from_starting(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = gang_of(self.printing("never"))
        await engine.stop(gang.key, grace_s=0.0)
        await engine.stop(gang.key, grace_s=5.0)
        await engine.ensure(gang)
        await (await reopen()).ensure(gang)
        seen = await engine.observed(gang.key.job_uid)
        assert [g.state for g in seen] == [GangState.TOMBSTONED]
        assert await engine.log_streams(gang.key.job_uid) == []

    async def test_attempts_that_were_skipped_hide_no_later_one(self, engine: Engine) -> None:
        third = gang_of(self.waiting(), key=replace(new_key(), attempt=3))
        await engine.ensure(third)
        await until_reached(engine, third.key, GangState.RUNNING)
        assert (3, "master-0") in await engine.log_streams(third.key.job_uid)
        await engine.stop(third.key, grace_s=0.0)
        await until_over(engine, third.key)
        await engine.stop(replace(third.key, attempt=6), grace_s=0.0)
        seen = {gang.attempt: gang.state for gang in await engine.observed(third.key.job_uid)}
        assert seen.pop(6) is GangState.TOMBSTONED
        assert seen.pop(3) is GangState.EXITED

    async def test_stop_of_something_gone_is_success(self, engine: Engine) -> None:
        gang = gang_of(self.printing("short"))
        await engine.ensure(gang)
        before = await until_over(engine, gang.key)
        await engine.stop(gang.key, grace_s=0.0)
        assert (await engine.observed(gang.key.job_uid))[0].reason == before.reason

    async def test_attempts_are_told_apart(self, engine: Engine) -> None:
        first = gang_of(self.exiting(1))
        second = gang_of(self.printing("again"), key=GangKey(first.key.job_uid, 2))
        await engine.ensure(first)
        await until_over(engine, first.key)
        await engine.ensure(second)
        await until_over(engine, second.key)
        seen = await engine.observed(first.key.job_uid)
        assert [(g.attempt, g.succeeded) for g in seen] == [(1, False), (2, True)]
        assert await log_of(engine, second.key) == b"again\n"

    async def test_a_follower_gets_everything_and_then_the_end(self, engine: Engine) -> None:
        gang = gang_of(self.waiting())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        follower = asyncio.create_task(collect(engine.logs(gang.key, "master-0", follow=True)))
        await engine.stop(gang.key, grace_s=5.0)
        await asyncio.wait_for(follower, LIMIT_S)

    async def test_an_elastic_gang_of_one_process_has_the_logs_of_several(
        self, engine: Engine
    ) -> None:
        await engine.ensure(gang := replace(several(self.printing("done")), elastic=True))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert await log_of(engine, gang.key, "worker-0") == b"done\n"
        assert await log_of(engine, gang.key, ALL_TASKS) == b"[worker-0] done\n"

    async def test_forget_drops_logs_and_keeps_the_gate(self, engine: Engine) -> None:
        gang = gang_of(self.printing("secret"))
        await engine.ensure(gang)
        await until_over(engine, gang.key)
        await engine.forget(gang.key.job_uid)
        assert await engine.log_streams(gang.key.job_uid) == []
        await engine.ensure(gang)
        assert all(seen.state.over for seen in await engine.observed(gang.key.job_uid))
        await engine.forget(gang.key.job_uid)

    async def test_forget_refuses_a_living_gang(self, engine: Engine) -> None:
        gang = gang_of(self.waiting())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        with pytest.raises(Conflict):
            await engine.forget(gang.key.job_uid)
        await engine.stop(gang.key, grace_s=0.0)
        await until_over(engine, gang.key)

    async def test_capacity_is_something(self, engine: Engine) -> None:
        capacity = await engine.capacity()
        assert capacity.cpu_millis >= 1000
        assert capacity.memory_bytes > 0

"""One machine or several: who waits for a place, and what a lost machine takes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import Gang, GangKey
from cloud_ml.testing.engine.looking import (
    log_of,
    several,
    until,
    until_over,
    until_reached,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class NodeContract(Programs):
    """One machine or several: who waits for a place, and what a lost machine takes with it."""

    def large(self, *commands: tuple[str, ...]) -> Gang:
        """A gang each of whose tasks needs more than half of a machine."""
        gang = several(*commands)
        amount = min(self.node_memory) * 6 // 10
        return replace(
            gang, processes=tuple(replace(plan, memory_bytes=amount) for plan in gang.processes)
        )

    @pytest.fixture
    def nodes(self) -> int:
        """How many machines there are; tests that need several are not for an engine of one."""
        if not self.node_memory:
            pytest.skip("this engine runs everything on one machine")
        return len(self.node_memory)

    async def test_an_engine_of_one_machine_lets_no_gang_wait(self, engine: Engine) -> None:
        if self.node_memory:
            pytest.skip("this engine has a queue of its own")
        gangs = [several(self.waiting(), self.waiting()) for _ in range(3)]
        for gang in gangs:
            await engine.ensure(gang)
            seen = await until(engine, gang.key, lambda seen: seen.state is not GangState.STAGING)
            assert seen.state is GangState.RUNNING, seen.message
        for gang in gangs:
            await engine.stop(gang.key, 0.0)
            await until_over(engine, gang.key)

    async def test_tasks_on_one_machine_share_a_folder(self, engine: Engine) -> None:
        """An engine of several machines says whether theirs do, and how is its own matter."""
        names = ["worker-0", "worker-1"]
        assert engine.places("any", names).shared_folder or self.node_memory

    async def test_tasks_on_several_machines_find_each_other(
        self, engine: Engine, nodes: int
    ) -> None:
        names = [f"worker-{number}" for number in range(nodes)]
        hosts = engine.places("any", names).hosts
        gang = self.large(*[self.resolving(hosts[name]) for name in reversed(names)])
        await engine.ensure(replace(gang, completes=tuple(names)))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert len({one.node for one in over.processes}) == nodes
        answers = {await log_of(engine, gang.key, name) for name in names}
        assert len(answers) == nodes, "a name stands for the machine of its task"

    async def test_a_gang_without_a_place_waits_and_holds_nothing(
        self, engine: Engine, nodes: int
    ) -> None:
        first = self.large(*[self.waiting()] * (nodes - 1))
        await engine.ensure(first)
        await until_reached(engine, first.key, GangState.RUNNING)
        names = [f"worker-{number}" for number in range(nodes)]
        second = self.large(*[self.resolving(names[0])] * nodes)
        await engine.ensure(replace(second, completes=tuple(names)))
        seen = await until_reached(engine, second.key, GangState.WAITING)
        assert seen.message, "the engine says why"
        assert seen.processes == ()
        assert seen.stages == {}
        assert await engine.log_streams(second.key.job_uid) == [], "no code of it has run"
        assert engine.places(second.key.job_uid, names).addresses == {}
        # It would fit, but not before the one that has waited longer.
        third = self.large(self.waiting())
        await engine.ensure(third)
        assert (await self._now(engine, third.key)).state is GangState.WAITING
        await engine.stop(first.key, 0.0)
        assert (await until_over(engine, second.key)).succeeded, "its names resolve now"
        assert (await until_reached(engine, third.key, GangState.RUNNING)).message == ""
        await engine.stop(third.key, 0.0)
        await until_over(engine, third.key)

    async def test_a_gang_that_waits_is_stopped(self, engine: Engine, nodes: int) -> None:
        first = self.large(*[self.waiting()] * nodes)
        second, third = self.large(self.printing("never")), self.large(self.printing("later"))
        for gang in (first, second, third):
            await engine.ensure(gang)
        await until_reached(engine, second.key, GangState.WAITING)
        await engine.stop(second.key, 5.0)
        over = await until_over(engine, second.key)
        assert (over.reason, over.processes) == (Reason.CANCELLED, ())
        await engine.stop(first.key, 0.0)
        assert (await until_over(engine, third.key)).succeeded
        await engine.ensure(second)
        assert await engine.log_streams(second.key.job_uid) == []

    async def test_a_lost_machine_takes_its_own_tasks_only(
        self, engine: Engine, nodes: int
    ) -> None:
        """Where tasks start again alone, the others do not notice."""
        others = several(self.waiting())
        gang = self.large(*[self.waiting()] * (nodes - 1))
        names = tuple(plan.name for plan in gang.processes)
        await engine.ensure(replace(gang, restarts=TaskRestarts(names, most=1)))
        await engine.ensure(others)
        before = await until_reached(engine, gang.key, GangState.RUNNING)
        lost = before.processes[-1]
        self.lose_node(engine, lost.node)

        def is_back(seen: ObservedGang) -> bool:
            return seen.state.over or _task(seen, lost.name).restarts == 1

        seen = await until(engine, gang.key, is_back)
        assert seen.state is GangState.RUNNING
        again = _task(seen, lost.name)
        assert again.node not in ("", lost.node)
        assert "NodeLost" in again.last_end
        assert again.free_restarts == 1, "the task can do nothing for it"
        assert seen.processes[:-1] == before.processes[:-1]
        elsewhere = await self._now(engine, others.key)
        assert elsewhere.state is GangState.RUNNING or elsewhere.node == lost.node
        for each in (gang, others):
            await engine.stop(each.key, 0.0)
            await until_over(engine, each.key)

    async def test_a_task_waits_until_another_machine_has_room(
        self, engine: Engine, nodes: int
    ) -> None:
        gang = self.large(*[self.waiting()] * (nodes - 1))
        other = self.large(self.waiting())
        names = tuple(plan.name for plan in gang.processes)
        for each in (replace(gang, restarts=TaskRestarts(names, most=1)), other):
            await engine.ensure(each)
        lost = (await until_reached(engine, gang.key, GangState.RUNNING)).processes[-1]
        self.lose_node(engine, lost.node)
        waits = await until(engine, gang.key, lambda seen: _task(seen, lost.name).restarting)
        assert waits.state is GangState.RUNNING
        await engine.stop(other.key, 0.0)
        await until(engine, gang.key, lambda seen: _task(seen, lost.name).running)
        await engine.stop(gang.key, 0.0)
        await until_over(engine, gang.key)

    async def test_a_lost_machine_ends_a_gang_whose_tasks_do_not_start_again(
        self, engine: Engine, nodes: int
    ) -> None:
        gang = self.large(*[self.waiting()] * nodes)
        await engine.ensure(gang)
        lost = (await until_reached(engine, gang.key, GangState.RUNNING)).processes[1]
        self.lose_node(engine, lost.node)
        over = await until_over(engine, gang.key)
        assert over.reason is Reason.NODE_LOST
        assert lost.name in over.message
        assert {one.name: one.reason for one in over.processes} == {
            one.name: Reason.NODE_LOST if one.name == lost.name else Reason.CANCELLED
            for one in over.processes
        }

    async def test_a_task_whose_place_is_given_to_others_starts_again_beside_them(
        self, engine: Engine, nodes: int
    ) -> None:
        gang = self.large(*[self.waiting()] * nodes)
        names = tuple(plan.name for plan in gang.processes)
        await engine.ensure(replace(gang, restarts=TaskRestarts(names, most=1)))
        before = await until_reached(engine, gang.key, GangState.RUNNING)
        self.preempt(engine, gang.key, names[-1])
        seen = await until(engine, gang.key, lambda seen: _task(seen, names[-1]).restarts == 1)
        again = _task(seen, names[-1])
        assert (again.last_reason, again.free_restarts) == (Reason.PREEMPTED, 1)
        assert names[-1] in again.last_end
        assert seen.processes[:-1] == before.processes[:-1]
        await engine.stop(gang.key, 0.0)
        await until_over(engine, gang.key)

    async def test_a_gang_whose_tasks_do_not_start_again_ends_with_the_place_of_one(
        self, engine: Engine, nodes: int
    ) -> None:
        gang = self.large(*[self.waiting()] * nodes)
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        name = gang.processes[1].name
        self.preempt(engine, gang.key, name)
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.PREEMPTED)
        assert name in over.message
        assert {one.name: one.reason for one in over.processes} == {
            one.name: Reason.PREEMPTED if one.name == name else Reason.CANCELLED
            for one in over.processes
        }

    async def _now(self, engine: Engine, key: GangKey) -> ObservedGang:
        return (await engine.observed(key.job_uid))[0]


def _task(gang: ObservedGang, name: str) -> ObservedProcess:
    return next(one for one in gang.processes if one.name == name)

"""Several processes of one gang: who decides its end, and who starts again."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.exits import ExitAction, ExitRule, ExitRules
from cloud_ml.domain.workloads.gangs import AfterEnd, TaskRestarts, after_end
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import ALL_TASKS, TaskRestarting
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import (
    EnvironmentPlan,
    GangKey,
    TrainerSource,
    Variant,
)
from cloud_ml.testing.engine.looking import (
    free_port,
    gang_of,
    log_of,
    several,
    until,
    until_over,
    until_reached,
    until_restarted,
    wait_for_output,
    wait_for_words,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class TaskContract(Programs):
    """Several processes of one gang: who decides its end, and who starts again."""

    async def test_a_gang_waits_for_all_that_complete_it(self, engine: Engine) -> None:
        gang = several(self.printing("first"), self.printing("second"))
        await engine.ensure(replace(gang, completes=("worker-0", "worker-1")))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert [(one.name, one.reason) for one in over.processes] == [
            ("worker-0", Reason.COMPLETED),
            ("worker-1", Reason.COMPLETED),
        ]
        assert await log_of(engine, gang.key, "worker-1") == b"second\n"
        merged = await log_of(engine, gang.key, ALL_TASKS)
        assert sorted(merged.splitlines()) == [b"[worker-0] first", b"[worker-1] second"]

    async def test_texts_of_rules_are_found_in_the_last_output(self, engine: Engine) -> None:
        gang = gang_of(self.failing("this is a CUDA error", 3))
        await engine.ensure(replace(gang, log_texts=("CUDA error", "no such words")))
        over = await until_over(engine, gang.key)
        assert over.processes[0].found_texts == ("CUDA error",)

    async def test_patterns_of_rules_are_found_in_the_last_output(self, engine: Engine) -> None:
        gang = gang_of(self.failing("this is a CUDA error", 3))
        patterns = ("CUDA (error|fault)", "no such words?")
        await engine.ensure(replace(gang, log_patterns=patterns))
        over = await until_over(engine, gang.key)
        assert over.processes[0].found_patterns == ("CUDA (error|fault)",), over.message

    async def test_a_text_of_a_rule_decides_that_a_task_starts_again(self, engine: Engine) -> None:
        if not self.restarts_tasks:
            pytest.skip("this engine starts no single process again")
        rules = (ExitRule(ExitAction.RESTART_TASK, log="CUDA error"),)
        gang = several(self.waiting(), self.failing("a CUDA error", 3))
        gang = replace(
            gang, restarts=TaskRestarts((), 1, ExitRules(rules=rules)), log_texts=("CUDA error",)
        )
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert over.processes[1].restarts == 1
        assert over.processes[1].exit_code == 3

    async def test_an_end_that_decides_nothing_is_told_meanwhile(self, engine: Engine) -> None:
        gang = several(self.waiting(), self.exiting(3))
        evaluator = replace(gang.processes[1], role="evaluator", index=0)
        gang = replace(gang, processes=(gang.processes[0], evaluator))
        await engine.ensure(gang)
        seen = await until(
            engine,
            gang.key,
            lambda seen: seen.state.over or any(one.reason for one in seen.processes),
        )
        assert seen.state is GangState.RUNNING
        assert [one.reason for one in seen.processes] == [None, Reason.NON_ZERO_EXIT]

    async def test_the_others_are_stopped_when_a_gang_is_complete(self, engine: Engine) -> None:
        gang = several(self.printing("done"), self.waiting())
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        assert [one.reason for one in over.processes] == [Reason.COMPLETED] * 2

    async def test_every_process_of_a_gang_finds_the_others(self, engine: Engine) -> None:
        names = ("worker-0", "worker-1")
        hosts = engine.places("any", names).hosts
        assert tuple(hosts) == names
        gang = several(*[self.resolving(hosts[name]) for name in reversed(names)])
        await engine.ensure(replace(gang, completes=names))
        over = await until_over(engine, gang.key)
        assert over.succeeded, over.message
        several_nodes = bool(self.node_memory)
        for name in names:
            address = await log_of(engine, gang.key, name)
            assert address == b"127.0.0.1\n" or several_nodes
            assert address != b"127.0.0.1\n" or not several_nodes

    async def test_every_name_resolves_in_every_process_when_its_code_starts(
        self, engine: Engine
    ) -> None:
        names = ("worker-0", "worker-1", "worker-2")
        hosts = engine.places("any", names).hosts
        for target in names:
            gang = several(*[self.resolving(hosts[target])] * len(names))
            await engine.ensure(replace(gang, completes=names))
            over = await until_over(engine, gang.key)
            assert over.succeeded, over.message
            answers = {await log_of(engine, gang.key, name) for name in names}
            assert len(answers) == 1, "all of them find the same"

    async def test_no_process_of_a_gang_starts_that_cannot_be_staged(self, engine: Engine) -> None:
        plan = EnvironmentPlan(
            trainer=TrainerSource("0" * 64, "none.tar.gz"), module="trainer.task"
        )
        gang = several(self.printing("never"), self.printing("never"))
        await engine.ensure(replace(gang, environment=plan))
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.TRAINER_NOT_FOUND)
        assert over.processes == ()
        streams = await engine.log_streams(gang.key.job_uid)
        logs = [await log_of(engine, gang.key, name) for _, name in streams]
        assert b"never" not in b"".join(logs)

    async def test_gangs_without_a_network_have_one_each(self, engine: Engine) -> None:
        """Two at once have the same ports, and none hears the other."""
        if not self.isolates_gangs:
            pytest.skip("this engine cannot give a gang a network of its own")
        names, port = ("worker-0", "worker-1"), free_port()
        host = engine.places("any", names).hosts["worker-0"]
        gangs = []
        for text in ("first", "second"):
            gang = several(self.serving(port, text), self.calling(host, port, text))
            server, client = gang.processes
            plans = (replace(server, ports=(port,)), client)
            gangs.append(replace(gang, processes=plans, completes=names, network="none"))
            await engine.ensure(gangs[-1])
        for gang, answer in zip(gangs, (b"first\n", b"second\n"), strict=True):
            over = await until_over(engine, gang.key)
            assert over.succeeded, over.message
            assert await log_of(engine, gang.key, "worker-1") == answer

    async def test_one_failure_ends_a_gang(self, engine: Engine) -> None:
        gang = several(self.waiting(), self.exiting(3), self.waiting())
        await engine.ensure(replace(gang, completes=("worker-0", "worker-1", "worker-2")))
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.NON_ZERO_EXIT)
        assert "worker-1" in over.message
        assert [one.reason for one in over.processes] == [
            Reason.CANCELLED,
            Reason.NON_ZERO_EXIT,
            Reason.CANCELLED,
        ]

    async def test_a_failed_task_starts_again_alone(self, engine: Engine) -> None:
        gang = several(self.waiting(), self.exiting(3))
        gang = replace(gang, restarts=TaskRestarts(("worker-1",), most=1))
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.NON_ZERO_EXIT)
        first, second = over.processes
        assert (first.restarts, second.restarts) == (0, int(self.restarts_tasks))
        assert second.exit_code == 3
        assert "3" in second.last_end or not self.restarts_tasks
        last = (second.last_reason, second.last_exit_code, second.last_signal)
        assert last == ((Reason.NON_ZERO_EXIT, 3, None) if self.restarts_tasks else (None,) * 3)
        assert ("(task_retries 1)" in second.message) is self.restarts_tasks
        assert over.message == second.message
        recoveries = [(one.role, one.reason, one.number, one.of_gang) for one in over.recoveries]
        assert recoveries == [("worker", "NonZeroExit", 1, False)] * int(self.restarts_tasks)
        assert all(one.lost_s is not None and one.lost_s >= 0 for one in over.recoveries)

    async def test_a_task_that_may_not_start_again_ends_the_gang(self, engine: Engine) -> None:
        gang = several(self.exiting(3), self.waiting())
        gang = replace(gang, restarts=TaskRestarts(("worker-1",), most=9))
        await engine.ensure(gang)
        over = await until_over(engine, gang.key)
        assert over.reason is Reason.NON_ZERO_EXIT
        assert [one.restarts for one in over.processes] == [0, 0]

    async def test_a_gang_is_stopped_while_a_task_waits_for_its_restart(
        self, engine: Engine
    ) -> None:
        gang = several(self.waiting(), self.exiting(3))
        gang = replace(gang, restarts=TaskRestarts(("worker-1",), most=9))
        await engine.ensure(gang)
        await until(
            engine,
            gang.key,
            lambda seen: seen.state.over or any(one.restarts for one in seen.processes),
        )
        await engine.stop(gang.key, 5)
        over = await until_over(engine, gang.key)
        assert over.state is GangState.EXITED
        assert not any(one.running for one in over.processes)

    async def test_every_process_is_told_why_and_until_when_it_stops(self, engine: Engine) -> None:
        gang = several(self.reading_notice(), self.reading_notice())
        await engine.ensure(gang)
        for name in ("worker-0", "worker-1"):
            await wait_for_output(engine, gang.key, name)
        before = time.time()
        await engine.stop(gang.key, 60.0, Reason.PAUSED)
        await until_over(engine, gang.key)
        for name in ("worker-0", "worker-1"):
            notice = json.loads(await log_of(engine, gang.key, name))
            assert notice["reason"] == "Paused"
            assert before + 60 <= notice["deadline"] <= time.time() + 60

    async def test_some_are_told_to_stop_when_the_others_have_ended(self, engine: Engine) -> None:
        gang = several(self.leaving_last(), self.leaving_first(), self.leaving_first())
        gang = replace(gang, stopped_last=("worker-0",))
        await engine.ensure(gang)
        for name in ("worker-0", "worker-1", "worker-2"):
            await wait_for_words(engine, gang.key, name, b"ready")
        await engine.stop(gang.key, 600.0)
        await self._left_in_order(engine, gang.key)

    async def test_the_order_of_stopping_holds_at_completion_too(self, engine: Engine) -> None:
        commands = (self.leaving_last(), self.leaving_first(), self.ending_when_ready())
        gang = replace(several(*commands), completes=("worker-2",), stopped_last=("worker-0",))
        await engine.ensure(replace(gang, grace_s=600.0))
        over = await self._left_in_order(engine, gang.key)
        assert over.succeeded, over.message
        assert [one.reason for one in over.processes] == [Reason.COMPLETED] * 3

    async def _left_in_order(self, engine: Engine, key: GangKey) -> ObservedGang:
        """The gang at its end: ``worker-0`` ended last, and nobody was killed."""
        over = await until_over(engine, key)
        assert [one.signal for one in over.processes] == [None] * 3
        lines = (await log_of(engine, key, ALL_TASKS)).splitlines()
        left = [line for line in lines if line.endswith(b"leaving")]
        assert left[-1] == b"[worker-0] leaving"
        assert len(left) == sum(b"ready" in line for line in lines)
        return over

    async def test_a_gang_whose_port_is_in_use_starts_nothing_and_says_so(
        self, engine: Engine
    ) -> None:
        port, unused = free_port(), free_port()
        other = gang_of(self.occupying(port))
        await engine.ensure(other)
        await wait_for_words(engine, other.key, "master-0", b"ready")
        gang = several(self.printing("never"), self.printing("never"))
        plans = tuple(
            replace(plan, ports=(one,))
            for one, plan in zip((unused, port), gang.processes, strict=True)
        )
        await engine.ensure(replace(gang, processes=plans))
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.PORT_TAKEN)
        assert f"port {port}" in over.message
        assert over.processes == ()
        await engine.stop(other.key, 0.0)
        await until_over(engine, other.key)
        again = replace(gang, key=GangKey(gang.key.job_uid, 2), processes=plans)
        await engine.ensure(again)
        assert (await until_over(engine, again.key)).succeeded

    async def test_a_process_is_started_again_when_somebody_wants_it(self, engine: Engine) -> None:
        assert isinstance(engine, TaskRestarting)
        assert (engine.restart_refusal() == "") is self.restarts_tasks
        gang = several(self.waiting(), self.waiting())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.restart_task(gang.key, "worker-9", 1, 5.0)
        await engine.restart_task(gang.key, "worker-1", 1, 5.0)
        if self.restarts_tasks:
            await until_restarted(engine, gang.key, "worker-1", 1)
            await engine.restart_task(gang.key, "worker-1", 1, 5.0)  # was asked for before
            await engine.restart_task(gang.key, "worker-1", 2, 5.0)
            await until_restarted(engine, gang.key, "worker-1", 2)
        await engine.stop(gang.key, 5.0)
        over = await until_over(engine, gang.key)
        first, second = over.processes
        expected = 2 if self.restarts_tasks else 0
        assert (first.restarts, second.restarts) == (0, expected)
        assert (first.requested_restarts, second.requested_restarts) == (0, expected)
        earlier = [one.number for one in second.earlier_restarts]
        assert earlier == ([1] if self.restarts_tasks else [])
        assert second.quick_failures == 0
        assert over.recoveries == (), "nothing has failed"
        assert "request" in second.last_end or not self.restarts_tasks
        await engine.restart_task(gang.key, "worker-1", 3, 5.0)
        assert (await until_over(engine, gang.key)).processes == over.processes

    async def test_a_restart_that_was_asked_for_costs_nothing_of_the_budget(
        self, engine: Engine
    ) -> None:
        assert isinstance(engine, TaskRestarting)
        if not self.restarts_tasks:
            pytest.skip("this engine starts no single process again")
        gang = several(self.waiting(), self.waiting())
        gang = replace(gang, restarts=TaskRestarts(("worker-1",), most=1))
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.restart_task(gang.key, "worker-1", 1, 5.0)
        await until_restarted(engine, gang.key, "worker-1", 1)
        await engine.stop(gang.key, 5.0)
        over = await until_over(engine, gang.key)
        ended = replace(over.processes[1], reason=Reason.NON_ZERO_EXIT, exit_code=3)
        follows = after_end((over.processes[0], ended), ended, (), gang.restarts)
        assert follows is AfterEnd.RESTART_TASK

    async def test_two_requests_for_one_restart_do_not_add_to_the_budget(
        self, engine: Engine
    ) -> None:
        assert isinstance(engine, TaskRestarting)
        if not self.restarts_tasks:
            pytest.skip("this engine starts no single process again")
        gang = several(self.waiting(), self.stubborn())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.restart_task(gang.key, "worker-1", 1, 60.0)
        await engine.restart_task(gang.key, "worker-1", 2, 0.1)
        await until(
            engine,
            gang.key,
            lambda seen: any(
                one.requested_restarts == 2 and one.restarts and one.running
                for one in seen.processes
            ),
        )
        await engine.stop(gang.key, 0.0)
        second = (await until_over(engine, gang.key)).processes[1]
        assert second.free_restarts == second.restarts

    async def test_a_process_that_does_not_heed_its_restart_is_killed(self, engine: Engine) -> None:
        assert isinstance(engine, TaskRestarting)
        if not self.restarts_tasks:
            pytest.skip("this engine starts no single process again")
        gang = several(self.waiting(), self.stubborn())
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        await engine.restart_task(gang.key, "worker-1", 1, 0.1)
        await until_restarted(engine, gang.key, "worker-1", 1)
        await engine.restart_task(gang.key, "worker-1", 2, 0.0)
        await until_restarted(engine, gang.key, "worker-1", 2)
        await engine.stop(gang.key, 0.0)
        await until_over(engine, gang.key)

    async def test_a_gang_in_no_variant_runs_nothing(self, engine: Engine) -> None:
        gang = several(self.printing("a"), self.printing("b"))
        await engine.ensure(replace(gang, variants=(Variant("caffe"),)))
        over = await until_over(engine, gang.key)
        assert (over.state, over.reason) == (GangState.EXITED, Reason.NO_DISTRIBUTED_RECIPE)
        assert over.processes == ()

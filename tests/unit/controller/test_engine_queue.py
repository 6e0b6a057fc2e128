"""Jobs that the controller has admitted and for which no machine has room: the engine's own queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.fake import FakeEngine, Machine
from cloud_ml.engines.gang import GangKey
from support.controller_world import World

pytestmark = pytest.mark.anyio

NODES = (2**30,) * 3


def gang_of(count: int) -> dict[str, Any]:
    """Tasks of which two fit on no machine together."""
    role = {"count": count, "memory_limit": "600M"}
    return {"recipe": "cluster", "cluster_spec": {"worker": role}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.machine = Machine(NODES)
    world.engine = FakeEngine(world.machine)
    return world


async def test_a_job_without_a_place_says_why_and_runs_when_there_is_one(world: World) -> None:
    async with world.controller(max_running_jobs=8):
        first = await world.submit("first", **gang_of(2))
        await world.until_phase(first, Phase.RUNNING)
        second = await world.submit("second", **gang_of(2))
        waits = await world.until(
            second, lambda job: job is not None and job.status.reason == Reason.WAITING_FOR_ENGINE
        )
        assert waits is not None
        assert waits.status.phase is Phase.STARTING
        assert waits.status.message == "1 of 2 tasks fit; no machine has room for worker-1"
        messages = [one.message for one in world.store.events(second)]
        assert messages.count(waits.status.message) == 1
        for task in ("worker-0", "worker-1"):
            world.engine.exit(GangKey(first, 1), task, 0)
        runs = await world.until_phase(second, Phase.RUNNING)
        assert (runs.status.reason, runs.status.message) == (Reason.STARTED, "")


async def test_it_waits_on_when_the_server_starts_again(world: World) -> None:
    async with world.controller(max_running_jobs=8):
        first = await world.submit("first", **gang_of(2))
        await world.until_phase(first, Phase.RUNNING)
        second = await world.submit("second", **gang_of(2))
        await world.until(
            second, lambda job: job is not None and job.status.reason == Reason.WAITING_FOR_ENGINE
        )
    async with world.controller("two", max_running_jobs=8):
        for task in ("worker-0", "worker-1"):
            world.engine.exit(GangKey(first, 1), task, 0)
        await world.until_phase(second, Phase.RUNNING)
    assert [key.job_uid for key in world.machine.starts] == [first, second]


async def test_a_task_of_a_lost_machine_starts_again_beside_the_others(world: World) -> None:
    async with world.controller(max_running_jobs=8):
        uid = await world.submit("lost", array="0-1", memory_limit="600M", task_retries=1)
        await world.until_phase(uid, Phase.RUNNING)
        key = GangKey(uid, 1)
        (gang,) = await world.engine.observed(uid)
        world.engine.lose_node(gang.processes[1].node)
        restarted = await world.until(
            uid, lambda job: job is not None and any(one.restarts for one in job.status.tasks)
        )
        assert restarted is not None
        assert [(one.name, one.restarts) for one in restarted.status.tasks] == [
            ("task-0", 0),
            ("task-1", 1),
        ]
        assert (restarted.status.attempt, restarted.status.retries_used) == (1, 0)
        messages = [one.message for one in world.store.events(uid) if one.reason == "TaskRestarted"]
        assert len(messages) == 1
        assert "NodeLost" in messages[0]
        for task in ("task-0", "task-1"):
            world.engine.exit(key, task, 0)
        await world.until_phase(uid, Phase.SUCCEEDED)


async def test_a_job_whose_place_is_given_to_others_starts_again_without_a_retry(
    world: World,
) -> None:
    async with world.controller(max_running_jobs=8):
        uid = await world.submit("preempted", memory_limit="600M")
        await world.until_phase(uid, Phase.RUNNING)
        world.engine.preempt(GangKey(uid, 1), "master-0")
        again = await world.until_phase(uid, Phase.RUNNING, attempt=2)
        assert again.status.retries_used == 0
        (message,) = [one.message for one in world.store.events(uid) if one.reason == "Restarting"]
        assert "Preempted: the place of master-0 on node-" in message
        assert "it costs no retry" in message
        world.engine.exit(GangKey(uid, 2), "master-0", 0)
        await world.until_phase(uid, Phase.SUCCEEDED, attempt=2)

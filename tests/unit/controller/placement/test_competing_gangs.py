"""Two gangs of which each needs more than half of the machine: one runs, one waits and holds
nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.state.base import StateStore
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.usecases.access.identities import Identity
from support.controller_world import World

pytestmark = pytest.mark.anyio

LARGE = {"recipe": "cluster", "cluster_spec": {"worker": {"count": 3, "memory_limit": "1600M"}}}
"""4.7 of the 8 GiB that the fake machine has."""
SMALL = {"recipe": "cluster", "cluster_spec": {"worker": {"count": 2, "memory_limit": "200M"}}}
"""Fits beside a large one."""


ROUNDS = int(os.environ.get("COMPETING_ROUNDS", "60"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    store = SqlStateStore.open(f"sqlite:///{tmp_path}/state.db")
    yield store
    store.close()


@dataclass(frozen=True)
class Owner:
    """A user, and the bucket of the organisation."""

    identity: Identity
    bucket: str


class Contest:
    """Gangs of one round, of one organisation or of two."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number

    async def submit(self, name: str, owner: Owner, fields: dict[str, Any]) -> str:
        return await self.world.submit(
            f"round-{self.number}-{name}",
            caller=owner.identity,
            trainer_uri=f"fds://{owner.bucket}/t.tar.gz",
            **fields,
        )

    def of(self, uid: str) -> TrainJobRecord:
        record = self.world.record(uid)
        assert record is not None
        return record

    async def until(self, uid: str, holds: Callable[[TrainJobRecord], bool]) -> TrainJobRecord:
        found = await self.world.until(uid, lambda job: job is not None and holds(job))
        assert found is not None
        return found

    async def until_runs(self, uid: str) -> TrainJobRecord:
        return await self.until(uid, lambda job: job.status.phase is Phase.RUNNING)

    async def until_waits(self, uid: str) -> TrainJobRecord:
        return await self.until(uid, lambda job: job.status.reason == Reason.INSUFFICIENT_CAPACITY)

    async def first_of(self, uids: list[str]) -> tuple[str, str]:
        """The one that runs, and the other."""
        async with asyncio.timeout(60):
            while not any(self.of(uid).status.phase is Phase.RUNNING for uid in uids):
                await asyncio.sleep(0)
        runs = next(uid for uid in uids if self.of(uid).status.phase is Phase.RUNNING)
        return runs, next(uid for uid in uids if uid != runs)

    def holds_nothing(self, uid: str) -> None:
        job = self.of(uid)
        assert job.status.phase is Phase.QUEUED
        assert job.status.ports == ()
        assert GangKey(uid, 1) not in self.world.machine.gangs, "the engine knows nothing of it"

    async def finish(self, uid: str) -> None:
        key = GangKey(uid, 1)
        for plan in self.world.machine.plans[key].tasks:
            self.world.engine.exit(key, plan.name, 0)
        await self.until(uid, lambda job: job.status.phase is Phase.SUCCEEDED)

    async def play(self, first: Owner, second: Owner) -> None:
        large = await asyncio.gather(
            self.submit("a", first, LARGE), self.submit("b", second, LARGE)
        )
        runs, waits = await self.first_of(large)
        assert len(self.of(runs).status.ports) == 3
        message = (await self.until_waits(waits)).status.message
        assert message == "memory of this machine: 4.69G of 8G are used, the job asks for 4.69G"
        late = await self.submit("late", first, SMALL)
        self.holds_nothing(waits)
        self.holds_nothing(late)
        await self.finish(runs)
        await self.until_runs(waits)
        # It waited for the large one before it only, which runs on.
        await self.until_runs(late)
        given = [port for uid in (waits, late) for port in self.of(uid).status.ports]
        assert len(set(given)) == 5
        await self.finish(waits)
        await self.finish(late)
        first_start, *others = [key.job_uid for key in self.world.machine.starts]
        assert first_start == runs
        assert sorted(others) == sorted((waits, late)), "each gang started once"


async def test_of_two_large_gangs_one_runs_and_one_waits(tmp_path: Path, store: StateStore) -> None:
    world = World(tmp_path, store=store)
    stranger = world.identities.create_organisation("stranger", default_bucket="theirs")
    world.storage.create_bucket(stranger, "theirs")
    world.objects.put("theirs", "t.tar.gz", b"code")
    mine = Owner(world.admin, "cloudml")
    theirs = Owner(world.identities.create_key(stranger, "sam"), "theirs")
    async with world.controller(max_running_jobs=8):
        for number in range(ROUNDS):
            await Contest(world, number).play(mine, theirs if number % 2 else mine)
            world.machine.gangs.clear()  # or each look takes longer than the one before
            world.machine.starts.clear()

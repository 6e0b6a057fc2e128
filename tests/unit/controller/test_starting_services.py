"""A service that was told to start while no controller ran starts with the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models.services.model_service import ModelService
from support.controller_world import World
from support.faulty import Faults

pytestmark = pytest.mark.anyio

NAME = ("m", "v1")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.offload.close()


async def until(world: World, phase: ServicePhase) -> None:
    async with asyncio.timeout(60):
        while world.services.find(world.admin.org, *NAME).status.phase is not phase:
            await asyncio.sleep(0.002)


def want(world: World, desired: Desired) -> None:
    world.services.want(world.admin.org, NAME, world.admin, desired)


@pytest.mark.parametrize("phase", [ServicePhase.STOPPED, ServicePhase.SAVED])
async def test_a_start_just_before_the_server_dies_is_kept(
    world: World, phase: ServicePhase
) -> None:
    saved = phase is ServicePhase.SAVED
    world.services.create(world.admin, ModelService(*NAME, "fds://cloudml/m", save_mode=saved))
    async with world.controller(faults=Faults()):
        if not saved:
            await until(world, ServicePhase.RUNNING)
            await world.offload(want, world, Desired.STOPPED)
        await until(world, phase)
    want(world, Desired.RUN)
    async with world.controller(faults=Faults()):
        await until(world, ServicePhase.RUNNING)

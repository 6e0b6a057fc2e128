"""Records that were made for another one: they wake it, and go before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.runtime.record_controller import RecordController, RecordRules
from cloud_ml.domain.records import Decision, ParentRef, Record
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.testing.state.samples import OTHER, SAMPLE, Phase, Progress, SampleSpec, make

pytestmark = pytest.mark.anyio
Rules = RecordRules[SampleSpec, Progress, Any]


def clock() -> datetime:
    return datetime.now(UTC)


async def offload(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return await asyncio.to_thread(call, *arguments, **named)


def nothing(record: Record[SampleSpec, Progress], now: datetime) -> Decision[Progress, Any]:
    return Decision()


class World:
    """A store with a controller for wishes, whose children are others."""

    def __init__(self) -> None:
        self.store = MemoryStateStore()
        self.order: list[str] = []

    async def note(self, record: Record[SampleSpec, Progress]) -> None:
        self.order.append(record.key.name)

    def manager(self, rules: Rules) -> ControllerManager:
        others = RecordRules[SampleSpec, Progress, Any](OTHER, set(), nothing, remove=self.note)
        return ControllerManager(
            [
                RecordController(each, store=self.store, clock=clock, offload=offload)
                for each in (rules, others)
            ],
            store=self.store,
            engine=FakeEngine(),
            settings=ControllerSettings(poll_s=0.05),
            holder="me",
            clock=clock,
            offload=offload,
        )


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def leading(manager: ControllerManager) -> AsyncIterator[None]:
    task = asyncio.create_task(manager.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


async def test_children_are_deleted_before_their_parent(world: World) -> None:
    parent = make(world.store, "parent")
    for number in range(3):
        make(world.store, f"c{number}", kind=OTHER, parent=ParentRef("wish", parent.key.uid))
    stranger = make(world.store, "stranger", kind=OTHER)
    rules = Rules(SAMPLE, set(), nothing, remove=world.note, children=[OTHER])
    async with leading(world.manager(rules)):
        world.store.request_delete(SAMPLE, parent.key.uid, now=clock())
        await until(lambda: world.store.get(SAMPLE, parent.key.uid) is None)
    assert sorted(world.order[:3]) == ["c0", "c1", "c2"]
    assert world.order[3:] == ["parent"]
    assert world.store.get(OTHER, stranger.key.uid) == stranger


async def test_a_child_wakes_its_parent(world: World) -> None:
    parent = make(world.store, "parent")
    children: list[bool] = []

    def decide(record: Record[SampleSpec, Progress], now: datetime) -> Decision[Progress, Any]:
        children.append(world.store.find(OTHER, "red", "child") is not None)
        return Decision()

    async with leading(world.manager(Rules(SAMPLE, {Phase.WAITING}, decide))):
        await until(lambda: children == [False])
        child = make(world.store, "child", kind=OTHER, parent=ParentRef("wish", parent.key.uid))
        await until(lambda: children[-1])
        world.store.request_delete(OTHER, child.key.uid, now=clock())
        await until(lambda: not children[-1])

"""A service beyond its organisation's share of ports says so, and others have theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import Service
from cloud_ml.settings import GatewaySettings
from cloud_ml.usecases.models import views
from support.controller_world import World
from support.faulty import Faults

pytestmark = pytest.mark.anyio


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_service_beyond_the_share_waits_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.serving = GatewaySettings(kept_replicas=0, ports="8600-8603", ports_share=0.5)
    stranger = world.identities.create_organisation("stranger", default_bucket="theirs")
    world.storage.create_bucket(stranger, "theirs")
    other = world.identities.create_key(stranger, "sam")
    world.objects.put("cloudml", "m/1/model.onnx", b"")
    world.objects.put("theirs", "m/1/model.onnx", b"")

    def create(version: str, *, foreign: bool = False) -> str:
        caller, bucket = (other, "theirs") if foreign else (world.admin, "cloudml")
        return world.services.create(
            caller, ModelService("m", version, f"fds://{bucket}/m")
        ).key.uid

    def port(uid: str) -> int:
        record = world.store.get(MODEL_SERVICE, uid)
        assert record is not None
        return record.status.port

    def shown(uid: str) -> Service:
        record = world.store.get(MODEL_SERVICE, uid)
        assert record is not None
        return views.service(record)

    def port_messages(uid: str) -> list[str]:
        return [one.message for one in world.store.events(uid) if one.reason == "NoPort"]

    async with world.controller(faults=Faults()):
        mine = [create(f"v{number}") for number in range(3)]
        await until(
            lambda: sum(bool(port(uid)) for uid in mine) == 2 and any(map(port_messages, mine))
        )
        (waiting,) = [uid for uid in mine if not port(uid)]
        assert len(port_messages(waiting)) == 1
        assert "gateway.ports_share" in port_messages(waiting)[0]
        await until(lambda: shown(waiting).reason == "NoPort")
        assert (shown(waiting).phase, shown(waiting).settled) == ("Starting", False)
        assert shown(waiting).message == port_messages(waiting)[0]
        theirs = create("v1", foreign=True)
        await until(lambda: bool(port(theirs)))
    world.endpoints.close()

"""A kind of resource that a test adds: its description and its decision are all of it, and
nothing else is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.cli.resource_group import resource_group
from cloud_ml.cli.session import Session
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.runtime.record_controller import RecordController, RecordRules
from cloud_ml.domain.records import Record
from cloud_ml.domain.scopes import _ACTIONS
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound
from cloud_ml.settings import ControllerSettings
from support import notes
from support.listening import listening
from support.notes import NOTE, NOTES, NewNote, Note, NoteSpec, NoteStatus, Phase, decide
from support.platform import Served

pytestmark = pytest.mark.anyio


@dataclass
class World:
    """A server with notes, its controller, and somebody at the command line."""

    served: Served
    client: AsyncCloudMlClient
    port: int
    removed: list[str]

    async def command(self, *arguments: str, text: str | None = None) -> Result:
        """``cloudml notes ARGUMENTS``."""
        identity = self.served.member.identity
        env = {
            "CLOUDML_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "CLOUDML_ACCESS_KEY": identity.access_key,
            "CLOUDML_SECRET_KEY": identity.secret,
        }
        session = Session()

        def run() -> Result:
            with contextlib.closing(session):
                return CliRunner().invoke(
                    resource_group(NOTES),
                    list(arguments),
                    input=text,
                    env=env,
                    obj=session,
                    standalone_mode=False,
                )

        return await asyncio.to_thread(run)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setitem(_ACTIONS, "notes", ("read", "write"))  # for this test only
    served, removed = Served(resources=[notes.NOTE_RESOURCE]), list[str]()
    served.clock.now = datetime.now(UTC)

    async def remove(record: Record[NoteSpec, NoteStatus]) -> None:
        removed.append(record.key.name)

    rules = RecordRules(NOTE, {Phase.DRAFT}, decide, remove=remove)
    controller = RecordController(
        rules, store=served.store, clock=served.clock, offload=served.platform.offload
    )
    manager = ControllerManager(
        [controller],
        store=served.store,
        engine=served.engine,
        settings=ControllerSettings(poll_s=0.05),
        holder="me",
        clock=served.clock,
        offload=served.platform.offload,
    )
    async with listening(served) as port:
        leading = asyncio.create_task(manager.run())
        identity = served.member.identity
        async with AsyncCloudMlClient(
            identity.access_key, identity.secret, f"http://127.0.0.1:{port}"
        ) as client:
            yield World(served, client, port, removed)
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
    served.close()


async def test_the_sdk_has_it(world: World) -> None:
    calls = world.client.resources(NOTES)
    made = await calls.create(NewNote(name="first", text="hello"))
    assert isinstance(made, Note)
    assert (made.text, made.phase) == ("hello", "Draft")
    with pytest.raises(AlreadyExists):
        await calls.create(NewNote(name="first", text="again"))
    with pytest.raises(InvalidRequest, match="text"):
        await calls.create(NewNote(name="long", text="x" * 2000))
    published = await calls.wait("first", timeout=60)
    assert (published.phase, published.copies) == ("Published", 1)
    assert [one.name async for one in calls.list()] == ["first"]
    assert [one.name async for one in calls.list(phases=["Draft"])] == []
    assert [event.reason for event in await calls.events("first")] == [
        "Created",
        "Copied",
        "Published",
    ]
    await calls.delete("first")
    await calls.wait_until_gone("first")
    assert world.removed == ["first"]
    with pytest.raises(NotFound):
        await calls.describe("first")


async def test_the_sdk_watches_it(world: World) -> None:
    calls = world.client.resources(NOTES)
    revision = world.served.store.revision()
    await calls.create(NewNote(name="first", text="hello"))
    async with aclosing(calls.watch(after=revision)) as changes:
        seen = []
        async for change in changes:
            seen.append(change.resource.phase if change.resource else "gone")
            if seen[-1] == "Published" and not change.resource.deleting:
                await calls.delete("first")
            if seen[-1] == "gone":
                break
    assert seen[-1] == "gone"
    assert "Published" in seen


async def test_the_command_line_has_it(world: World) -> None:
    assert (
        await world.command("create", "first", "text=hello=1")
    ).output == "the note first is created\n"
    assert (
        await world.command("create", "-f", "-", text="name: second\ntext: '2'\n")
    ).exit_code == 0
    assert (await world.command("wait", "first")).output == "first is Published\n"
    assert (await world.command("wait", "second")).return_value == 0
    table = (await world.command("list")).output.splitlines()
    assert table[0].split() == ["NAME", "STATE", "TEXT", "OWNER", "CREATED"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["second", "Published", "2", "mei"],
        ["first", "Published", "hello=1", "mei"],
    ]
    assert (
        json.loads((await world.command("describe", "first", "-o", "json")).output)["copies"] == 1
    )
    assert "Copies:" in (await world.command("describe", "first")).output
    assert "published: hello=1" in (await world.command("events", "first")).output
    assert (await world.command("delete", "first", "second", "--wait")).output.count(
        "is deleted"
    ) == 2
    assert (await world.command("list", "-o", "name")).output == ""


async def test_the_command_line_explains_mistakes(world: World) -> None:
    async def error_of(*arguments: str) -> str:
        return str((await world.command(*arguments)).exception)

    assert "missing: NAME" in await error_of("create", "text=hello")
    assert "'hello' is not FIELD=VALUE" in await error_of("create", "first", "hello")
    assert "colour" in await error_of("create", "first", "text=a", "colour=red")
    assert "there is no note nothing" in await error_of("describe", "nothing")
    assert "no.yaml cannot be read" in await error_of("create", "-f", "no.yaml")


async def test_what_it_costs() -> None:
    """The lines of the smallest kind. A number that grows says that kinds have become dearer."""
    lines = [
        line for line in inspect.getsource(notes).splitlines() if line.strip() and '"""' not in line
    ]
    assert len(lines) < 75

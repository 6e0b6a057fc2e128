"""A kind of resource that has nothing but its description: what everybody can ask of it over
HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cloud_ml.domain.scopes import _ACTIONS
from cloud_ml.domain.tenancy import Role
from support.asgi import Exchange
from support.notes import NOTE, NOTE_RESOURCE, NoteStatus, Phase
from support.platform import Caller, Served
from support.server_events import events

pytestmark = pytest.mark.anyio


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(_ACTIONS, "notes", ("read", "write"))  # for this test only
    served = Served(resources=[NOTE_RESOURCE])
    yield served
    served.close()


async def write(
    caller: Caller, name: str = "first", text: str = "hello", **headers: str
) -> dict[str, Any]:
    answer = await caller.call(
        "POST", "/api/v1/notes", {"name": name, "text": text}, headers=headers
    )
    assert answer.status == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def publish(served: Served, uid: str) -> None:
    record = served.store.get(NOTE, uid)
    assert record is not None
    served.store.commit_status(
        NOTE,
        uid,
        NoteStatus(Phase.PUBLISHED, 1),
        expected_revision=record.revision,
        fence=None,
        now=served.clock(),
    )


async def test_it_is_created_shown_listed_and_deleted(served: Served) -> None:
    made = await write(served.member)
    assert (made["name"], made["text"], made["phase"], made["owner"]) == (
        "first",
        "hello",
        "Draft",
        "mei",
    )
    assert (await served.member.call("GET", "/api/v1/notes/first")).json() == made
    assert (await served.member.call("GET", f"/api/v1/notes/{made['uid']}")).json() == made
    second = await write(served.member, "second")
    page = (await served.member.call("GET", "/api/v1/notes?limit=1")).json()
    assert [one["name"] for one in page["items"]] == ["second"]
    page = (await served.member.call("GET", f"/api/v1/notes?limit=1&after={page['next']}")).json()
    assert [one["name"] for one in page["items"]] == ["first"]
    publish(served, second["uid"])
    for phases, names in (
        ("phase=Published", ["second"]),
        ("phase=Published&phase=Draft", ["second", "first"]),
    ):
        page = (await served.member.call("GET", f"/api/v1/notes?{phases}")).json()
        assert [one["name"] for one in page["items"]] == names
    deleted = await served.member.call("DELETE", "/api/v1/notes/first")
    assert (deleted.status, deleted.json()["deleting"]) == (202, True)


async def test_a_mistake_is_named(served: Served) -> None:
    async def refused(document: Any) -> tuple[int, str]:
        answer = await served.member.call("POST", "/api/v1/notes", document)
        return answer.status, answer.json()["field"]

    assert await refused({"name": "Über", "text": "x"}) == (400, "name")
    assert await refused({"name": "x", "text": "x" * 2000}) == (400, "text")
    assert await refused({"name": "x"}) == (400, "text")
    assert await refused({"name": "x", "text": "x", "colour": "red"}) == (400, "colour")
    await write(served.member)
    taken = await served.member.call("POST", "/api/v1/notes", {"name": "first", "text": "hello"})
    assert (taken.status, taken.json()["same_spec"]) == (409, True)
    assert (await served.member.call("GET", "/api/v1/notes/first?colour=red")).status == 400


async def test_a_lost_answer_makes_no_second_one(served: Served) -> None:
    key = {"Idempotency-Key": "one"}
    made = await write(served.member, **key)
    assert await write(served.member, **key) == made
    other = await served.member.call(
        "POST", "/api/v1/notes", {"name": "x", "text": "y"}, headers=key
    )
    assert other.status == 409


async def test_roles_organisations_and_tokens_are_as_for_every_kind(served: Served) -> None:
    await write(served.member)
    identities = served.platform.identities
    viewer = served.as_caller(
        identities.create_key(identities.organisation("default"), "vera", role=Role.VIEWER)
    )
    assert (await viewer.call("GET", "/api/v1/notes/first")).status == 200
    assert (await viewer.call("POST", "/api/v1/notes", {"name": "v", "text": "x"})).status == 403
    assert (await viewer.call("DELETE", "/api/v1/notes/first")).status == 403
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/events"),
        ("GET", "/watch"),
        ("GET", "/events/watch"),
    ):
        foreign = await served.stranger.call(method, f"/api/v1/notes/first{path}")
        missing = await served.stranger.call(method, f"/api/v1/notes/never{path}")
        assert foreign.status == missing.status == 404
        assert foreign.text.replace("first", "never") == missing.text
    assert (await served.stranger.call("GET", "/api/v1/notes")).json()["items"] == []
    for scope, expected in (
        ("notes:read", (200, 403)),
        ("notes:write", (200, 202)),
        ("jobs:write", (403, 403)),
    ):
        token_request = {"scopes": [scope], "expires_in_s": 60}
        token = (await served.member.call("POST", "/api/v1/tokens", token_request)).json()["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        read = await served.client.send("GET", "/api/v1/notes/first", bearer)
        change = await served.client.send("DELETE", "/api/v1/notes/first", bearer)
        assert (read.status, change.status) == expected


async def test_it_is_described_in_the_document(served: Served) -> None:
    document = (await served.client.send("GET", "/api/v1/openapi.json")).json()
    paths = {path for path in document["paths"] if path.startswith("/api/v1/notes")}
    one = "/api/v1/notes/{name}"
    assert paths == {
        "/api/v1/notes",
        "/api/v1/notes/-/watch",
        one,
        f"{one}/events",
        f"{one}/watch",
        f"{one}/events/watch",
    }
    page = document["components"]["schemas"]["NotePage"]
    assert page["properties"]["items"]["items"] == {"$ref": "#/components/schemas/Note"}
    assert all(
        operation["description"] for path in paths for operation in document["paths"][path].values()
    )


async def test_changes_and_events_are_watched(served: Served) -> None:
    made = await write(served.member)
    async with (
        served.member.open("/api/v1/notes/-/watch?after=0") as everything,
        served.member.open("/api/v1/notes/first/watch") as one,
        served.member.open("/api/v1/notes/first/events/watch") as event_stream,
    ):
        streams = [messages(each) for each in (everything, one, event_stream)]
        seen = [await following(stream) for stream in streams]
        assert [kind for kind, _ in seen] == ["changed", "changed", "said"]
        assert seen[0][1]["resource"] == seen[1][1]["resource"] == made
        publish(served, made["uid"])
        assert [(await following(stream))[1]["resource"]["phase"] for stream in streams[:2]] == [
            "Published"
        ] * 2
        served.store.delete(NOTE, made["uid"], fence=None)
        assert [(await following(stream))[0] for stream in streams] == ["gone", "gone", "end"]
    await write(served.member)
    found = (await served.member.call("GET", "/api/v1/notes/first/events")).json()
    assert [event["message"] for event in found["items"]] == ["created by mei"]


async def messages(exchange: Exchange) -> AsyncIterator[tuple[str, Any]]:
    async for kind, _, data in events(exchange):
        if kind not in (":", "ready"):
            yield kind, data


async def following(stream: AsyncIterator[tuple[str, Any]]) -> tuple[str, Any]:
    return await asyncio.wait_for(anext(stream), 60)

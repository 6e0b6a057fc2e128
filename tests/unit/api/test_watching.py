"""Watching without polling: tags of answers, waits, and server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Event
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.phases import Phase, TaskStatus
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.settings import ApiSettings, KeySettings
from cloud_ml.usecases import feed
from support.listening import listening
from support.platform import Served
from support.server_events import events

pytestmark = pytest.mark.anyio


async def following(
    stream: AsyncIterator[tuple[str, int | None, Any]],
) -> tuple[str, int | None, Any]:
    return await asyncio.wait_for(anext(stream), 60)


@pytest.mark.parametrize("path", ["/api/v1/jobs/linear", "/api/v1/jobs?limit=5"])
async def test_what_the_caller_has_is_not_sent_again(served: Served, path: str) -> None:
    job = await served.submitted(job_name="linear")
    first = await served.member.call("GET", path)
    tag = first.headers["etag"]
    for known in (tag, f'"x", W/{tag}', "*"):
        again = await served.member.call("GET", path, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    await served.submitted(served.stranger, trainer_uri="fds://others/t.tar.gz")
    assert (await served.member.call("GET", path, headers={"If-None-Match": tag})).status == 304
    served.move(job["uid"], Phase.STARTING)
    changed = await served.member.call("GET", path, headers={"If-None-Match": tag})
    assert changed.status == 200
    assert changed.headers["etag"] != tag


async def test_services_that_the_caller_has_are_not_sent_again(served: Served) -> None:
    model = {
        "model_name": "linear",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    uid = (await served.admin.call("POST", "/api/v1/models", model)).json()["uid"]
    for path in ("/api/v1/models/linear/v1", "/api/v1/models"):
        first = await served.member.call("GET", path)
        known = {"If-None-Match": first.headers["etag"]}
        await served.submitted()
        assert (await served.member.call("GET", path, headers=known)).status == 304
    stop_service(served, uid)
    assert (await served.member.call("GET", "/api/v1/models", headers=known)).status == 200


def stop_service(served: Served, uid: str) -> None:
    record = served.store.get(MODEL_SERVICE, uid)
    assert record is not None
    served.store.commit_status(
        MODEL_SERVICE, uid, replace(record.status, phase=ServicePhase.STOPPED),
        expected_revision=record.revision, fence=None, now=served.clock(),
    )  # fmt: skip


async def test_a_service_is_watched_from_how_it_stands_to_its_end(served: Served) -> None:
    model = {
        "model_name": "linear",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    uid = (await served.admin.call("POST", "/api/v1/models", model)).json()["uid"]
    listed = (await served.member.call("GET", "/api/v1/models")).json()
    async with (
        served.member.open(f"/api/v1/models/-/watch?after={listed['revision']}") as everything,
        served.member.open("/api/v1/models/linear/v1/watch") as one,
    ):
        streams = [events(everything), events(one)]
        assert (await following(streams[0]))[0] == "ready"
        kind, _, change = await following(streams[1])
        assert (kind, change["name"], change["version"], change["service"]["phase"]) == (
            "service",
            "linear",
            "v1",
            "Saved",
        )
        stop_service(served, uid)
        for stream in streams:
            assert (await following(stream))[2]["service"]["phase"] == "Stopped"
        served.store.delete(MODEL_SERVICE, uid, fence=None)
        for stream in streams:
            kind, _, change = await following(stream)
            assert (kind, change["version"], change["service"]) == ("gone", "v1", None)
    foreign = await served.stranger.call("GET", "/api/v1/models/linear/v1/watch")
    assert foreign.status == 404


async def test_events_are_waited_for(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    seen = (await served.member.call("GET", "/api/v1/jobs/linear/events")).json()["items"][-1]["id"]
    request = asyncio.ensure_future(
        served.member.call("GET", f"/api/v1/jobs/linear/events?after={seen}&wait=60")
    )
    served.store.add_event(job["uid"], Event(served.clock(), "Said", "hello"))
    answer = await asyncio.wait_for(request, 50)
    assert [event["message"] for event in answer.json()["items"]] == ["hello"]
    assert (await served.member.call("GET", "/api/v1/jobs/linear/events?wait=61")).json()[
        "field"
    ] == "wait"
    nothing = await served.member.call("GET", "/api/v1/jobs/linear/events?after=9999&wait=0.01")
    assert nothing.json() == {"items": []}


async def test_events_of_a_service_are_waited_for(served: Served) -> None:
    model = {
        "model_name": "linear",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    made = (await served.admin.call("POST", "/api/v1/models", model)).json()
    path = "/api/v1/models/linear/v1/events"
    seen = (await served.member.call("GET", path)).json()["items"][-1]["id"]
    request = asyncio.ensure_future(served.member.call("GET", f"{path}?after={seen}&wait=60"))
    served.store.add_event(made["uid"], Event(served.clock(), "Said", "hello"))
    answer = await asyncio.wait_for(request, 50)
    assert [event["message"] for event in answer.json()["items"]] == ["hello"]
    assert (await served.member.call("GET", f"{path}?wait=61")).json()["field"] == "wait"
    assert (await served.member.call("GET", f"{path}?after=9999&wait=0.01")).json() == {"items": []}


@pytest.mark.parametrize("what", ["job", "service"])
async def test_events_come_as_they_are_said_and_are_taken_up_again(
    served: Served, what: str
) -> None:
    if what == "job":
        made, path = await served.submitted(job_name="linear"), "/api/v1/jobs/linear"
    else:
        model = {
            "model_name": "linear",
            "model_version": "v1",
            "model_uri": "fds://cloudml/m",
            "save_mode": True,
        }
        made, path = (
            (await served.admin.call("POST", "/api/v1/models", model)).json(),
            "/api/v1/models/linear/v1",
        )
    before = (await served.member.call("GET", f"{path}/events")).json()["items"]
    async with served.member.open(f"{path}/events/watch") as exchange:
        stream = events(exchange)
        assert [await following(stream) for _ in before] == [
            ("said", one["id"], one) for one in before
        ]
        served.store.add_event(made["uid"], Event(served.clock(), "Said", "hello"))
        kind, number, event = await following(stream)
        assert (kind, number, event["message"]) == ("said", event["id"], "hello")
    served.store.add_event(made["uid"], Event(served.clock(), "Said", "again"))
    async with served.member.open(f"{path}/events/watch?after={number}") as exchange:
        stream = events(exchange)
        assert (await following(stream))[2]["message"] == "again"
        served.store.delete(TRAIN_JOB if what == "job" else MODEL_SERVICE, made["uid"], fence=None)
        assert await following(stream) == ("end", None, {})
        with pytest.raises(StopAsyncIteration):
            await following(stream)
    gone = await served.member.call("GET", f"{path}/events/watch")
    assert gone.status == 404


async def test_events_of_a_job_end_with_it(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    async with served.member.open(f"/api/v1/jobs/{job['uid']}/events/watch") as exchange:
        stream = events(exchange)
        assert (await following(stream))[2]["reason"] == "Submitted"
        served.move(job["uid"], Phase.STOPPED)
        assert (await following(stream))[0] == "end"


async def test_a_job_is_watched_from_how_it_stands_to_its_end(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    await served.submitted(job_name="other")
    async with served.member.open("/api/v1/jobs/linear/watch") as exchange:
        stream = events(exchange)
        kind, number, change = await following(stream)
        assert (kind, number, change["job"]["phase"]) == ("job", job["revision"], "Queued")
        revision = served.move(job["uid"], Phase.STARTING)
        kind, number, change = await following(stream)
        assert (kind, number, change["job"]["phase"]) == ("job", revision, "Starting")
        served.store.delete(TRAIN_JOB, job["uid"], fence=None)
        kind, number, change = await following(stream)
        assert (kind, number, change["job"], change["name"]) == (
            "gone",
            served.store.revision(),
            None,
            "linear",
        )
        with pytest.raises(StopAsyncIteration):
            await following(stream)
    assert not served.platform.feed_of(TRAIN_JOB).watchers


async def test_tasks_of_a_job_of_several_are_in_its_stream(served: Served) -> None:
    job = await served.submitted(job_name="linear", worker_count=2, recipe="cluster")
    async with served.member.open("/api/v1/jobs/linear/watch") as exchange:
        stream = events(exchange)
        await following(stream)
        tasks = (TaskStatus("worker-0", running=True), TaskStatus("worker-1", restarts=2))
        served.move(job["uid"], Phase.STARTING, tasks=tasks)
        task_views = (await following(stream))[2]["job"]["tasks"]
        assert [(one["name"], one["running"], one["restarts"]) for one in task_views] == [
            ("worker-0", True, 0),
            ("worker-1", False, 2),
        ]


async def test_an_organisation_hears_of_its_own_jobs_only(served: Served) -> None:
    async with (
        served.member.open("/api/v1/jobs/-/watch") as mine,
        served.stranger.open("/api/v1/jobs/-/watch") as theirs,
        served.admin.open("/api/v1/jobs/-/watch?org_id=-1") as all_of_them,
    ):
        streams = [events(one) for one in (mine, theirs, all_of_them)]
        assert [(await following(stream))[0] for stream in streams] == ["ready"] * 3
        job = await served.submitted(
            served.stranger, job_name="secret", trainer_uri="fds://others/t.tar.gz"
        )
        served.store.delete(TRAIN_JOB, job["uid"], fence=None)
        await served.submitted(job_name="linear")
        assert (await following(streams[0]))[2]["name"] == "linear"
        heard = [await following(streams[2])]
        while heard[-1][2]["name"] != "linear":
            heard.append(await following(streams[2]))
        assert heard[0][2]["name"] == "secret"
        assert (await following(streams[1]))[2]["name"] == "secret"


@pytest.mark.parametrize("kept", [1000, 2])
async def test_nothing_is_lost_between_two_streams(
    served: Served, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(feed, "_KEPT", kept)
    listed = (await served.member.call("GET", "/api/v1/jobs")).json()["revision"]
    names = [(await served.submitted())["name"] for _ in range(3)]
    async with served.member.open(f"/api/v1/jobs/-/watch?after={listed}") as exchange:
        stream = events(exchange)
        assert (await following(stream))[:2] == ("ready", listed)
        seen = [await following(stream) for _ in range(2)]
        names += [(await served.submitted())["name"] for _ in range(4)]
    headers = served.member.sign("GET", "/api/v1/jobs/-/watch") | {
        "Last-Event-ID": str(seen[-1][1])
    }
    async with served.client.open("GET", "/api/v1/jobs/-/watch", headers) as exchange:
        stream = events(exchange)
        await following(stream)
        seen += [await following(stream) for _ in range(5)]
    assert [change["name"] for _, _, change in seen] == names


async def test_a_slow_reader_is_told_the_newest_state(served: Served) -> None:
    job = await served.submitted()
    async with served.member.open(f"/api/v1/jobs/-/watch?after={job['revision'] - 1}") as exchange:
        for phase in (Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED):
            served.move(job["uid"], phase)
        stream = events(exchange)
        await following(stream)
        phases = [(await following(stream))[2]["job"]["phase"]]
        while phases[-1] != "Succeeded":
            phases.append((await following(stream))[2]["job"]["phase"])
        assert phases == sorted(phases, key=["Queued", "Starting", "Running", "Succeeded"].index)


async def test_a_stream_shows_that_it_is_open_and_ends_in_time() -> None:
    served = Served(ApiSettings(heartbeat_s=0.1, stream_limit_s=0))
    try:
        async with served.member.open("/api/v1/jobs/-/watch") as exchange:
            assert [kind async for kind, _, _ in events(exchange)] == ["ready", ":"]
    finally:
        served.close()


async def test_streams_end_when_the_server_goes_down(served: Served) -> None:
    async with served.member.open("/api/v1/jobs/-/watch") as exchange:
        stream = events(exchange)
        await following(stream)
        served.platform.hub.close()
        with pytest.raises(StopAsyncIteration):
            await following(stream)


@pytest.mark.parametrize(
    ("name", "value"), [("Last-Event-ID", "x"), ("Last-Event-ID", "9" * 30), ("after", "-1")]
)
async def test_a_place_that_cannot_be_is_refused(served: Served, name: str, value: str) -> None:
    target = "/api/v1/jobs/-/watch" + (f"?after={value}" if name == "after" else "")
    answer = await served.member.call(
        "GET", target, headers={name: value} if name != "after" else {}
    )
    assert (answer.status, answer.json()["field"]) == (400, name)


async def test_nobody_watches_a_job_of_somebody_else(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    for name in ("linear", job["uid"]):
        assert (await served.stranger.call("GET", f"/api/v1/jobs/{name}/watch")).status == 404


async def test_a_log_is_given_from_an_offset(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    served.move(job["uid"], Phase.STARTING)
    key = await served.run(job["uid"])
    served.engine.write(key, "master-0", b"one\ntwo\n")
    path = "/api/v1/jobs/linear/logs"
    for offset, rest in ((0, b"one\ntwo\n"), (3, b"\ntwo\n"), (8, b""), (100, b"")):
        assert (await served.member.call("GET", f"{path}?offset={offset}")).body == rest
    for query in ("offset=-1", "offset=1&lines=2", "offset=x"):
        assert (await served.member.call("GET", f"{path}?{query}")).json()["field"] == "offset"
    async with served.member.open(f"{path}?follow=true&offset=5") as exchange:
        chunks = exchange.chunks()
        assert await asyncio.wait_for(anext(chunks), 60) == b"wo\n"
        served.engine.write(key, "master-0", b"three\n")
        assert await asyncio.wait_for(anext(chunks), 60) == b"three\n"


@pytest.mark.parametrize(
    "path",
    ["/api/v1/jobs/linear/watch", "/api/v1/jobs/-/watch", "/api/v1/jobs/linear/logs?follow=1"],
)
@pytest.mark.parametrize(
    "change",
    [
        ("PATCH", "/api/v1/admin/keys/{key}", {"enabled": False}),
        ("DELETE", "/api/v1/admin/keys/{key}", None),
        ("PATCH", "/api/v1/admin/users/tim?org=vision", {"enabled": False}),
        ("PATCH", "/api/v1/admin/users/tim?org=vision", {"role": "viewer"}),
        ("PATCH", "/api/v1/admin/orgs/vision", {"enabled": False}),
    ],
)
async def test_a_stream_ends_with_the_right_to_it(
    served: Served, path: str, change: tuple[str, str, Any]
) -> None:
    served.platform.key_settings = KeySettings(staleness_s=0.01)
    identities = served.platform.identities
    tim = served.as_caller(identities.create_key(identities.create_organisation("vision"), "tim"))
    served.platform.storage.create_bucket(tim.identity.organisation, "vision")
    job = await served.submitted(tim, job_name="linear", trainer_uri="fds://vision/trainer.tar.gz")
    served.move(job["uid"], Phase.STARTING, attempt=1)
    await served.run(job["uid"])
    async with tim.open(path) as exchange:
        assert exchange.status == 200
        method, target, document = change
        assert (
            await served.admin.call(method, target.format(key=tim.identity.access_key), document)
        ).status == 200

        async def end() -> None:
            async for _ in exchange.chunks():
                pass

        await asyncio.wait_for(end(), 60)


STREAMS = [
    "/api/v1/jobs/linear/watch",
    "/api/v1/jobs/-/watch",
    "/api/v1/jobs/linear/logs?follow=1",
    "/api/v1/jobs/linear/events/watch",
]


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("how", ["revoke", "expire", "end of its key", "end of its user"])
async def test_a_stream_ends_with_the_access_token_that_opened_it(
    served: Served, path: str, how: str
) -> None:
    served.platform.key_settings = KeySettings(staleness_s=0.01)
    identities = served.platform.identities
    vision = identities.create_organisation("vision")
    tim = served.as_caller(identities.create_key(vision, "tim"))
    served.platform.storage.create_bucket(vision, "vision")
    job = await served.submitted(tim, job_name="linear", trainer_uri="fds://vision/trainer.tar.gz")
    served.move(job["uid"], Phase.STARTING, attempt=1)
    await served.run(job["uid"])
    request = {"scopes": ["jobs:read"], "expires_in_s": 60}
    made = (await tim.call("POST", "/api/v1/tokens", request)).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with served.client.open("GET", path, headers) as exchange:
        assert exchange.status == 200

        async def end() -> None:
            async for _ in exchange.chunks():
                pass

        with pytest.raises(TimeoutError):  # it goes on while its token works
            await asyncio.wait_for(end(), 0.2)
    async with served.client.open("GET", path, headers) as exchange:
        if how == "revoke":
            await tim.call("DELETE", f"/api/v1/tokens/{made['info']['id']}")
        elif how == "expire":
            served.clock.advance(61)
        elif how == "end of its key":
            key = tim.identity.access_key
            await served.admin.call("DELETE", f"/api/v1/admin/keys/{key}")
        else:
            user = "/api/v1/admin/users/tim?org=vision"
            await served.admin.call("PATCH", user, {"enabled": False})
        await asyncio.wait_for(end(), 10)


async def test_many_streams_of_a_token_look_it_up_once_in_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"scopes": ["jobs:read"], "expires_in_s": 60}
    made = (await served.member.call("POST", "/api/v1/tokens", request)).json()
    tokens, lookups = served.platform.tokens, []
    find = served.store.find
    monkeypatch.setattr(served.store, "find", lambda *key: lookups.append(key) or find(*key))
    for _ in range(300):
        assert tokens.holder(made["info"]["id"]) is not None
    assert len(lookups) < 10


EPOCH = 1 << 36


def restored(served: Served) -> None:
    """The database goes on in the next epoch, as after a restore."""
    served.store._records.revision += EPOCH


@pytest.mark.parametrize("header", [True, False])
async def test_a_watcher_of_a_replaced_database_is_told_to_start_again(
    served: Served, header: bool
) -> None:
    job = await served.submitted(job_name="linear")
    seen = served.store.revision()
    restored(served)
    for after in (seen, served.store.revision() + 1, seen + 7 * EPOCH):
        for path in ("-", "linear"):
            if path == "linear" and after == job["revision"]:
                continue
            target = f"/api/v1/jobs/{path}/watch" + ("" if header else f"?after={after}")
            headers = {"Last-Event-ID": str(after)} if header else {}
            answer = await served.member.call("GET", target, headers=headers)
            error = answer.json()
            assert (answer.status, error["code"], error["value"]) == (410, "start_again", after), (
                path
            )
    listed = (await served.member.call("GET", "/api/v1/jobs")).json()["revision"]
    async with served.member.open(f"/api/v1/jobs/-/watch?after={listed}") as exchange:
        stream = events(exchange)
        assert (await following(stream))[:2] == ("ready", listed)


async def test_a_job_of_an_earlier_epoch_is_watched_and_gone_on_with(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    restored(served)
    async with served.member.open("/api/v1/jobs/linear/watch") as exchange:
        kind, number, change = await following(events(exchange))
    assert (kind, change["job"]["revision"]) == ("job", job["revision"])
    assert number == served.store.revision(), "the place to go on from is of this epoch"
    for after in (number, job["revision"]):
        async with served.member.open(f"/api/v1/jobs/linear/watch?after={after}") as exchange:
            stream = events(exchange)
            assert (await following(stream))[0] == "ready"
            served.move(job["uid"], Phase.STARTING if after == number else Phase.RUNNING)
            assert (await following(stream))[0] == "job"


async def test_a_wait_for_a_revision_that_is_void_ends_at_once(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    answer = await asyncio.wait_for(
        served.member.call("GET", f"/api/v1/jobs/linear?wait=60&revision={job['revision'] + 100}"),
        50,
    )
    assert answer.json()["revision"] == job["revision"]


async def test_the_sdk_watches_services(served: Served) -> None:
    served.clock.now = datetime.now(UTC)
    identity = served.member.identity
    async with (
        listening(served) as port,
        AsyncCloudMlClient(
            identity.access_key, identity.secret, f"http://127.0.0.1:{port}"
        ) as client,
    ):
        after = served.store.revision()
        model = ModelService("linear", "v1", "fds://cloudml/m", save_mode=True)
        service = await client.create_model_service(model)
        async with aclosing(client.watch_model_services(after=after)) as changes:
            first = await asyncio.wait_for(anext(changes), 60)
            assert (first.name, first.version) == ("linear", "v1")
            assert first.service is not None
            served.store.delete(MODEL_SERVICE, service.service.uid, fence=None)
            assert (await asyncio.wait_for(anext(changes), 60)).service is None

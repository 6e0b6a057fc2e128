"""Runs are waited for and watched over HTTP, with and without a job."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import runs
from cloud_ml.domain.tracking.runs import RUN
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import NotFound
from cloud_ml.models.tracking.metrics import LoggedValue
from cloud_ml.models.tracking.run import Run
from support.listening import listening
from support.platform import Caller, Served
from support.server_events import events

pytestmark = pytest.mark.anyio
MLFLOW = "/mlflow/api/2.0/mlflow/runs"


async def create(caller: Caller, name: str = "one") -> str:
    answer = await caller.call("POST", f"{MLFLOW}/create", {"run_name": name})
    return str(answer.json()["run"]["info"]["run_id"])


async def change(served: Served, what: str, run: str, **fields: Any) -> None:
    answer = await served.admin.call("POST", f"{MLFLOW}/{what}", {"run_id": run, **fields})
    assert answer.status == 200, answer.text


async def finish(served: Served, run: str) -> None:
    await change(served, "update", run, status="FINISHED", end_time=5000)


async def following(
    stream: AsyncIterator[tuple[str, int | None, Any]],
) -> tuple[str, int | None, Any]:
    return await asyncio.wait_for(anext(stream), 60)


async def described(caller: Caller, run: str, query: str = "") -> dict[str, Any]:
    answer = await asyncio.wait_for(caller.call("GET", f"/api/v1/runs/{run}{query}"), 60)
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_the_end_of_a_run_is_waited_for(served: Served) -> None:
    run = await create(served.member)
    seen = await described(served.member, run)
    request = asyncio.ensure_future(
        described(served.member, run, f"?wait=60&revision={seen['revision']}")
    )
    await change(served, "log-metric", run, key="loss", value=0.5, timestamp=1)
    await finish(served, run)
    ended = await request
    assert (ended["state"], ended["metrics"]) == ("FINISHED", {"loss": 0.5})
    assert ended["revision"] > seen["revision"]
    assert (await described(served.member, run, "?wait=60&revision=1"))["state"] == "FINISHED"
    listed = (await served.member.call("GET", "/api/v1/runs")).json()
    assert listed["items"] == [ended]
    assert listed["revision"] >= ended["revision"]


async def test_what_is_logged_ends_no_wait(served: Served) -> None:
    run = await create(served.member)
    seen = await described(served.member, run)
    await change(served, "log-parameter", run, key="lr", value="0.1")
    later = await described(served.member, run, "?wait=0.01")
    assert (later["params"], later["revision"]) == ({"lr": "0.1"}, seen["revision"])


async def test_a_wait_is_bounded_and_ends_with_the_run(served: Served) -> None:
    run = await create(served.member)
    refused = await served.member.call("GET", f"/api/v1/runs/{run}?wait=61")
    assert (refused.status, refused.json()["field"]) == (400, "wait")
    request = asyncio.ensure_future(served.member.call("GET", f"/api/v1/runs/{run}?wait=60"))
    served.store.delete(RUN, run, fence=None)
    assert (await asyncio.wait_for(request, 60)).status == 404


async def test_the_run_of_a_job_is_waited_for_and_watched_as_the_job_is(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    run = await described(served.member, job["uid"])
    assert (run["state"], run["revision"]) == ("SCHEDULED", job["revision"])
    async with served.member.open(f"/api/v1/runs/{job['uid']}/watch") as exchange:
        stream = events(exchange)
        kind, number, update = await following(stream)
        assert (kind, number, update["run"]["name"]) == ("run", job["revision"], "linear")
        request = asyncio.ensure_future(
            described(served.member, job["uid"], f"?wait=60&revision={job['revision']}")
        )
        revision = served.move(job["uid"], Phase.STARTING)
        assert (await request)["revision"] == revision
        assert (await following(stream))[1] == revision
        revision = served.move(job["uid"], Phase.FAILED)
        kind, number, update = await following(stream)
        assert (kind, number, update["run"]["state"]) == ("run", revision, "FAILED")


async def test_a_run_is_watched_from_how_it_stands_to_its_end(served: Served) -> None:
    run = await create(served.member)
    async with served.member.open(f"/api/v1/runs/{run}/watch") as exchange:
        stream = events(exchange)
        assert (await following(stream))[2]["run"] == await described(served.member, run)
        await change(served, "set-tag", run, key="mlflow.runName", value="two")
        assert (await following(stream))[2]["run"]["name"] == "two"
        await change(served, "delete", run)
        assert (await following(stream))[2]["run"]["deleted"] is True
        await change(served, "restore", run)
        assert (await following(stream))[2]["run"]["deleted"] is False
        await change(served, "log-metric", run, key="loss", value=0.5, timestamp=1)
        await finish(served, run)
        kind, number, update = await following(stream)
        assert (kind, update["run"]["state"], update["revision"]) == ("run", "FINISHED", number)
        assert (await served.admin.call("DELETE", f"/api/v1/runs/{run}")).status == 200
        # That its deletion is asked for is told, too, unless it is gone by then.
        while (last := await following(stream))[0] != "gone":
            assert last[0] == ":" or last[2]["run"]["state"] == "FINISHED"
        assert last[2] == {
            "revision": served.store.revision(), "uid": run, "org": "default", "run": None,
        }  # fmt: skip
        with pytest.raises(StopAsyncIteration):
            await following(stream)
    assert not served.platform.feed_of(RUN).watchers


async def test_an_organisation_hears_of_its_own_runs_only(served: Served) -> None:
    listed = (await served.member.call("GET", "/api/v1/runs")).json()["revision"]
    async with (
        served.member.open(f"/api/v1/runs/-/watch?after={listed}") as mine,
        served.stranger.open("/api/v1/runs/-/watch") as theirs,
        served.admin.open("/api/v1/runs/-/watch?org_id=-1") as all_of_them,
    ):
        streams = [events(one) for one in (mine, theirs, all_of_them)]
        assert [(await following(stream))[0] for stream in streams] == ["ready"] * 3
        foreign = await create(served.stranger, "secret")
        await served.submitted()  # a job is told in the stream of all jobs
        own = await create(served.member)
        assert (await following(streams[0]))[2]["uid"] == own
        assert (await following(streams[1]))[2]["run"]["name"] == "secret"
        assert [(await following(streams[2]))[2]["uid"] for _ in range(2)] == [foreign, own]


async def test_a_change_that_many_watch_is_read_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, described = await create(served.member), list[str]()
    describe = runs._describe

    def count(here: Platform, org: str, uid: str) -> Run:
        described.append(uid)
        return describe(here, org, uid)

    async with contextlib.AsyncExitStack() as opened:
        paths = ["/api/v1/runs/-/watch"] * 3 + [f"/api/v1/runs/{run}/watch"] * 3
        open_ = [await opened.enter_async_context(served.member.open(path)) for path in paths]
        streams = [events(one) for one in open_]
        for stream in streams:
            await following(stream)
        await finish(served, run)
        for stream in streams:
            assert (await following(stream))[2]["run"]["state"] == "FINISHED"
        monkeypatch.setattr(runs, "_describe", count)
        await change(served, "set-tag", run, key="mlflow.runName", value="two")
        for stream in streams:
            assert (await following(stream))[2]["run"]["name"] == "two"
    assert described == [run]


@pytest.mark.parametrize("path", ["", "?wait=60", "?wait=60&revision=1", "/watch"])
async def test_a_run_of_somebody_else_is_answered_like_none(served: Served, path: str) -> None:
    run, never = await create(served.member), "0" * 32
    foreign = await served.stranger.call("GET", f"/api/v1/runs/{run}{path}")
    missing = await served.stranger.call("GET", f"/api/v1/runs/{never}{path}")
    assert foreign.status == missing.status == 404
    assert foreign.text.replace(run, never) == missing.text


@contextlib.asynccontextmanager
async def connected(served: Served) -> AsyncIterator[AsyncCloudMlClient]:
    served.clock.now = datetime.now(UTC)
    key = served.member.identity
    async with (
        listening(served) as port,
        AsyncCloudMlClient(key.access_key, key.secret, f"http://127.0.0.1:{port}") as client,
    ):
        yield client


async def test_the_sdk_that_awaits_watches_all_runs(served: Served) -> None:
    async with connected(served) as client:
        after = served.store.revision()
        uid = await client.runs.create("one")
        async with aclosing(client.runs.watch(after=after)) as changes:
            assert (await asyncio.wait_for(anext(changes), 60)).uid == uid
            await client.runs.log(uid, metrics=[LoggedValue("loss", math.nan, 0, 1)])
            waiting = asyncio.ensure_future(client.runs.wait(uid, 60))
            await client.runs.finish(uid)
            ended = await waiting
            change = await asyncio.wait_for(anext(changes), 60)
            assert change.run is not None
            assert (change.run.succeeded, ended.succeeded) == (True, True)
            assert math.isnan(float(change.run.metrics["loss"]))
            await client.runs.delete(uid)
            while not change.gone:
                change = await asyncio.wait_for(anext(changes), 60)
            assert change.uid == uid


async def test_a_run_that_is_hidden_before_its_end_is_not_waited_for(served: Served) -> None:
    async with connected(served) as client:
        uid = await client.runs.create("one")
        waiting = asyncio.ensure_future(client.runs.wait(uid, 60))
        await change(served, "delete", uid)
        with pytest.raises(NotFound, match="run one was deleted while it was RUNNING"):
            await waiting
        await change(served, "restore", uid)
        await client.runs.finish(uid)
        await change(served, "delete", uid)
        assert (await client.runs.wait(uid)).succeeded

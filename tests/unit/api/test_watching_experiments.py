"""Experiments are watched over HTTP, and waited for until none of their runs is active."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.api.routes import experiments
from cloud_ml.domain.tracking.runs import RUN, Experiment
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import NotFound, WaitTimedOut
from support.listening import listening
from support.platform import Caller, Served
from support.server_events import events

pytestmark = pytest.mark.anyio
MLFLOW = "/mlflow/api/2.0/mlflow"
PATH = "/api/v1/experiments"
Stream = AsyncIterator[tuple[str, int | None, Any]]


async def next_event(stream: Stream) -> tuple[str, int | None, Any]:
    return await asyncio.wait_for(anext(stream), 60)


async def call(caller: Caller, what: str, **fields: Any) -> dict[str, Any]:
    answer = await caller.call("POST", f"{MLFLOW}/{what}", fields)
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def create(caller: Caller, name: str = "digits") -> str:
    return str((await call(caller, "experiments/create", name=name))["experiment_id"])


async def begin(caller: Caller, experiment: str, name: str = "one") -> str:
    made = await call(caller, "runs/create", experiment_id=experiment, run_name=name)
    return str(made["run"]["info"]["run_id"])


async def finish(caller: Caller, run: str, state: str = "FINISHED") -> None:
    await call(caller, "runs/update", run_id=run, status=state, end_time=5000)


async def get(caller: Caller, path: str) -> dict[str, Any]:
    answer = await asyncio.wait_for(caller.call("GET", PATH + path), 60)
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def waiting(served: Served, path: str, run: str) -> asyncio.Future[dict[str, Any]]:
    """A request that waits for the end of a run by now."""
    request = asyncio.ensure_future(get(served.member, path))
    async with asyncio.timeout(60):
        while run not in served.platform.hub._watches:
            await asyncio.sleep(0.001)
    return request


async def test_an_experiment_is_watched_from_how_it_stands(served: Served) -> None:
    id_ = await create(served.member)
    async with served.member.open(f"{PATH}/{id_}/watch") as exchange:
        stream = events(exchange)
        kind, number, first = await next_event(stream)
        assert (kind, first["experiment"]) == ("experiment", await get(served.member, f"/{id_}"))
        assert (first["id"], first["org"], first["revision"]) == (id_, "default", number)
        changes: Sequence[tuple[str, dict[str, str], str, object]] = (
            ("update", {"new_name": "letters"}, "name", "letters"),
            ("set-experiment-tag", {"key": "a", "value": "b"}, "tags", {"a": "b"}),
            ("delete-experiment-tag", {"key": "a"}, "tags", {}),
            ("delete", {}, "deleted", True),
            ("restore", {}, "deleted", False),
        )
        for what, fields, field, value in changes:
            await begin(served.member, "0")  # what runs do is no change of it
            await call(served.member, f"experiments/{what}", experiment_id=id_, **fields)
            kind, number, change = await next_event(stream)
            assert (kind, change["experiment"][field]) == ("experiment", value)
            assert change["revision"] == change["experiment"]["revision"] == number
        revision = number
    assert not served.platform.experiment_feed.watchers
    await call(served.member, "experiments/update", experiment_id=id_, new_name="words")
    async with served.member.open(f"{PATH}/{id_}/watch?after={revision}") as exchange:
        stream = events(exchange)
        assert (await next_event(stream))[0] == "ready"
        assert (await next_event(stream))[2]["experiment"]["name"] == "words"


async def test_a_watcher_of_all_begins_behind_a_list_or_the_last_event(served: Served) -> None:
    before = await get(served.member, "")
    await create(served.member)
    async with served.member.open(f"{PATH}/-/watch?after={before['revision']}") as exchange:
        stream = events(exchange)
        assert (await next_event(stream))[0] == "ready"
        _, seen, change = await next_event(stream)
        assert change["experiment"]["name"] == "digits"
    await create(served.member, "letters")
    target = f"{PATH}/-/watch"
    headers = served.member.sign("GET", target) | {"Last-Event-ID": str(seen)}
    async with served.client.open("GET", target, headers) as exchange:
        stream = events(exchange)
        assert [(await next_event(stream))[0] for _ in range(2)] == ["ready", "experiment"]


async def test_an_organisation_hears_of_its_own_experiments_only(served: Served) -> None:
    async with (
        served.member.open(f"{PATH}/-/watch") as mine,
        served.stranger.open(f"{PATH}/-/watch") as theirs,
        served.admin.open(f"{PATH}/-/watch?org_id=-1") as all_of_them,
    ):
        streams = [events(one) for one in (mine, theirs, all_of_them)]
        assert [(await next_event(stream))[0] for stream in streams] == ["ready"] * 3
        foreign, own = await create(served.stranger), await create(served.member)
        assert (await next_event(streams[0]))[2]["id"] == own
        assert (await next_event(streams[1]))[2]["id"] == foreign
        assert [(await next_event(streams[2]))[2]["id"] for _ in range(2)] == [foreign, own]


async def test_the_default_experiments_of_two_organisations_are_not_mixed_up(
    served: Served,
) -> None:
    async with (
        served.member.open(f"{PATH}/0/watch") as mine,
        served.stranger.open(f"{PATH}/0/watch") as theirs,
    ):
        streams = [events(one) for one in (mine, theirs)]
        assert [(await next_event(stream))[1] for stream in streams] == [0, 0]
        for caller, name in ((served.stranger, "secret"), (served.member, "open")):
            await call(caller, "experiments/update", experiment_id="0", new_name=name)
        names = [(await next_event(stream))[2]["experiment"]["name"] for stream in streams]
        assert names == ["open", "secret"]


async def test_a_revision_of_the_future_is_of_another_history(served: Served) -> None:
    refused = await served.member.call("GET", f"{PATH}/-/watch?after={2**61}")
    assert (refused.status, refused.json()["code"]) == (410, "start_again")


async def test_a_change_that_many_watch_is_read_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, made = await create(served.member), list[str]()
    view = experiments.experiment_view
    async with contextlib.AsyncExitStack() as opened:
        paths = [f"{PATH}/-/watch"] * 3 + [f"{PATH}/{id_}/watch"] * 3
        open_ = [await opened.enter_async_context(served.member.open(path)) for path in paths]
        streams = [events(one) for one in open_]
        for stream in streams:
            await next_event(stream)
        await create(served.member, "letters")  # all read what the follower keeps from here on
        for stream in streams[:3]:
            await next_event(stream)

        def count(one: Experiment) -> Any:
            made.append(one.id)
            return view(one)

        monkeypatch.setattr(experiments, "experiment_view", count)
        await call(served.member, "experiments/update", experiment_id=id_, new_name="two")
        for stream in streams:
            assert (await next_event(stream))[2]["experiment"]["name"] == "two"
    assert made == [id_]


async def test_a_change_of_an_experiment_is_waited_for(served: Served) -> None:
    id_ = await create(served.member)
    seen = await get(served.member, f"/{id_}")
    request = asyncio.ensure_future(
        get(served.member, f"/{id_}?wait=60&revision={seen['revision']}")
    )
    await call(
        served.member, "experiments/set-experiment-tag", experiment_id=id_, key="a", value="b"
    )
    later = await request
    assert (later["tags"], later["revision"] > seen["revision"]) == ({"a": "b"}, True)
    assert await get(served.member, f"/{id_}?wait=60&revision={seen['revision']}") == later
    assert await get(served.member, f"/{id_}?wait=0.01") == later
    request = asyncio.ensure_future(get(served.member, f"/{id_}?wait=60"))
    async with asyncio.timeout(60):
        while not served.platform.experiment_feed.watchers:
            await asyncio.sleep(0.001)
    served.platform.hub.close()
    assert await request == later
    assert not served.platform.experiment_feed.watchers


async def test_active_runs_are_waited_for(served: Served) -> None:
    id_ = await create(served.member)
    assert (await get(served.member, f"/{id_}/active?wait=60"))["items"] == []
    first = await begin(served.member, id_, "first")
    job = await served.submitted(job_name="linear", labels={"experiment": "digits"})
    await begin(served.member, "0", "elsewhere")
    page = await get(served.member, f"/{id_}/active?wait=0.01")
    assert [(one["name"], one["state"]) for one in page["items"]] == [
        ("linear", "SCHEDULED"), ("first", "RUNNING"),
    ]  # fmt: skip
    assert page["next"] is None
    request = await waiting(served, f"/{id_}/active?wait=60", job["uid"])
    served.move(job["uid"], Phase.STARTING)
    second = await begin(served.member, id_, "second")
    served.move(job["uid"], Phase.FAILED)
    for run in (first, second):
        assert not request.done()
        await finish(served.member, run, "KILLED")
    assert (await request)["items"] == []


@pytest.mark.parametrize("how", ["hidden", "removed"])
async def test_a_run_that_is_deleted_is_not_active(served: Served, how: str) -> None:
    id_ = await create(served.member)
    run = await begin(served.member, id_)
    request = await waiting(served, f"/{id_}/active?wait=60", run)
    if how == "hidden":
        await call(served.member, "runs/delete", run_id=run)
    else:
        served.store.delete(RUN, run, fence=None)
    assert (await request)["items"] == []


async def test_active_runs_are_ten_at_most(served: Served) -> None:
    id_ = await create(served.member)
    for number in range(11):
        await begin(served.member, id_, f"run{number}")
    page = await get(served.member, f"/{id_}/active")
    assert [one["name"] for one in page["items"]] == [f"run{n}" for n in range(10, 0, -1)]
    assert page["next"] is not None


@pytest.mark.parametrize(
    "path", ["", "?wait=60", "?wait=60&revision=1", "/watch", "/active", "/active?wait=60"]
)
async def test_an_experiment_of_somebody_else_is_answered_like_none(
    served: Served, path: str
) -> None:
    id_, never = await create(served.member), "9" * 18
    foreign = await served.stranger.call("GET", f"{PATH}/{id_}{path}")
    missing = await served.stranger.call("GET", f"{PATH}/{never}{path}")
    assert foreign.status == missing.status == 404
    assert foreign.text.replace(id_, never) == missing.text


@pytest.mark.parametrize("path", ["", "/watch", "/active"])
async def test_a_name_in_the_place_of_an_id_is_answered_with_the_id(
    served: Served, path: str
) -> None:
    id_ = await create(served.member)
    answer = await served.member.call("GET", f"{PATH}/digits{path}")
    hint = f"An experiment has that name; its id is {id_}."
    assert (answer.status, answer.json()["hint"]) == (404, hint)
    assert "hint" not in (await served.stranger.call("GET", f"{PATH}/digits{path}")).json()


@pytest.mark.parametrize("path", ["", "/active"])
async def test_a_wait_is_bounded(served: Served, path: str) -> None:
    refused = await served.member.call("GET", f"{PATH}/0{path}?wait=61")
    assert (refused.status, refused.json()["field"]) == (400, "wait")


@contextlib.asynccontextmanager
async def connected(served: Served) -> AsyncIterator[AsyncCloudMlClient]:
    served.clock.now = datetime.now(UTC)
    key = served.member.identity
    async with (
        listening(served) as port,
        AsyncCloudMlClient(key.access_key, key.secret, f"http://127.0.0.1:{port}") as client,
    ):
        yield client


async def test_the_sdk_that_awaits_watches_and_waits(served: Served) -> None:
    async with connected(served) as client:
        after = served.store.revision()
        experiment = await client.runs.ensure_experiment("digits")
        async with aclosing(client.experiments.watch(after=after)) as changes:
            change = await asyncio.wait_for(anext(changes), 60)
            assert (change.id, change.experiment.name) == (experiment.id, "digits")
            uid = await client.runs.create("one", experiment)
            with pytest.raises(
                WaitTimedOut, match=r"^digits still has active runs: one \(RUNNING\) after 0\.1 s$"
            ):
                await client.experiments.wait("digits", 0.1)
            request = asyncio.ensure_future(client.experiments.wait("digits", 60))
            await client.runs.finish(uid, "FAILED")
            assert await request == change.experiment
        async with aclosing(client.experiments.watch("digits")) as changes:
            assert (await asyncio.wait_for(anext(changes), 60)) == change
        assert [one.name for one in await client.experiments.list()] == ["digits", "Default"]


async def test_a_wrong_name_is_answered_with_those_that_there_are(served: Served) -> None:
    await create(served.member)
    async with connected(served) as client:
        for request in (client.experiments.wait("digit"), anext(client.experiments.watch("digit"))):
            with pytest.raises(NotFound, match="there is no experiment 'digit'") as raised:
                await request
            assert raised.value.allowed == "one of digits, Default"

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.api import long_polls
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import RequestedRestart
from cloud_ml.engines.gang import Gang, GangKey, ProcessPlan
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import Job, JobEvents, JobPage
from cloud_ml.models.jobs.recipes import RECIPE_NAMES
from support.platform import Served

pytestmark = pytest.mark.anyio


async def test_a_submitted_job_can_be_read_back(served: Served) -> None:
    body = served.job(
        job_name="linear", job_args=["--steps", "10"], cpu_limit="0.5", memory_limit="100M"
    )
    answer = await served.member.call("POST", "/api/v1/jobs", body)
    assert answer.status == 201
    job = codec.decode(Job, answer.json())
    assert (job.name, job.org, job.owner, job.phase, job.state) == (
        "linear",
        "default",
        "mei",
        "Queued",
        "enqueued",
    )
    assert body.items() <= job.spec.items()
    for name in ("linear", job.uid):
        assert (await served.member.call("GET", f"/api/v1/jobs/{name}")).json() == answer.json()


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"job_name": "Linear"}, "job_name", "lower-case"),
        ({"cpu_limit": "lots"}, "cpu_limit", "decimals"),
        ({"cpu_limits": "1"}, "cpu_limits", "cpu_limit"),
        ({"trainer_uri": None}, "trainer_uri", "string"),
        ({"gpu_limit": 1}, "gpu_limit", "no GPU"),
        ({"cpu_limit": "5"}, "cpu_limit", "at most 4 cores"),
        ({"docker_image": "x"}, "docker_image", "leave it out"),
    ],
)
async def test_a_bad_field_is_named(
    served: Served, change: dict[str, Any], field: str, words: str
) -> None:
    answer = await served.member.call("POST", "/api/v1/jobs", served.job() | change)
    assert (answer.status, answer.json()["field"]) == (400, field)
    assert words in answer.text


async def test_a_check_refuses_like_a_submission_and_makes_nothing(served: Served) -> None:
    for change in ({"cpu_limit": "5"}, {"docker_image": "x"}, {"output_path": "fds://nowhere/x"}):
        answers = [
            await served.member.call("POST", path, served.job() | change)
            for path in ("/api/v1/jobs/check", "/api/v1/jobs")
        ]
        assert [answer.status for answer in answers] == [400, 400]
        assert answers[0].json()["message"] == answers[1].json()["message"]
    assert (await served.member.call("POST", "/api/v1/jobs/check", served.job())).status == 204
    assert (await served.member.call("GET", "/api/v1/jobs")).json()["items"] == []


async def test_a_missing_field_is_named(served: Served) -> None:
    answer = await served.member.call(
        "POST", "/api/v1/jobs", {"job_name": "linear", "module_name": "a"}
    )
    assert (answer.status, answer.json()["field"]) == (400, "trainer_uri")


async def test_a_repeated_submit_tells_whether_the_first_arrived(served: Served) -> None:
    body = served.job()
    await served.member.call("POST", "/api/v1/jobs", body)
    again = await served.member.call("POST", "/api/v1/jobs", body)
    assert (again.status, again.json()["code"], again.json()["same_spec"]) == (
        409,
        "already_exists",
        True,
    )
    other = await served.member.call("POST", "/api/v1/jobs", body | {"cpu_limit": "1"})
    assert other.json()["same_spec"] is False


async def test_an_idempotency_key_answers_with_the_job_it_made(served: Served) -> None:
    body, key = served.job(), {"Idempotency-Key": "abc"}
    first = await served.member.call("POST", "/api/v1/jobs", body, headers=key)
    again = await served.member.call("POST", "/api/v1/jobs", body, headers=key)
    assert (again.status, again.json()) == (201, first.json())
    other = await served.member.call("POST", "/api/v1/jobs", served.job(), headers=key)
    assert (other.status, other.json()["code"]) == (409, "conflict")
    bad = await served.member.call(
        "POST", "/api/v1/jobs", served.job(), headers={"Idempotency-Key": "a b"}
    )
    assert (bad.status, bad.json()["field"]) == (400, "Idempotency-Key")


async def test_the_list_pages_from_the_newest(served: Served) -> None:
    for _ in range(5):
        await served.submitted()
    names: list[str] = []
    after = ""
    for _ in range(3):
        answer = await served.member.call("GET", f"/api/v1/jobs?limit=2{after}")
        page = codec.decode(JobPage, answer.json())
        names.extend(job.name for job in page.items)
        after = f"&after={page.next}"
    assert names == [f"linear-{i}" for i in (5, 4, 3, 2, 1)]
    assert page.next is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "after=x", "state=asleep"])
async def test_a_bad_page_is_refused(served: Served, query: str) -> None:
    answer = await served.member.call("GET", f"/api/v1/jobs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, query.partition("=")[0])


async def test_the_list_is_narrowed_by_state(served: Served) -> None:
    job = await served.submitted()
    await served.submitted(save_mode=True)
    listed = (await served.member.call("GET", "/api/v1/jobs?state=Queued")).json()["items"]
    assert [line["uid"] for line in listed] == [job["uid"]]


@pytest.mark.parametrize("path", ["", "/events", "/tasks", "/logs", "/logs?follow=true"])
async def test_a_job_of_somebody_else_is_as_absent_as_none(served: Served, path: str) -> None:
    job = await served.submitted(job_name="linear")
    answers = {
        name: await served.stranger.call("GET", f"/api/v1/jobs/{name}{path}")
        for name in ("linear", "never", job["uid"])
    }
    assert {answer.status for answer in answers.values()} == {404}
    assert len({answer.text.replace(name, "N") for name, answer in answers.items()}) == 1


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/cancel"), ("POST", "/start"), ("DELETE", "")]
)
async def test_nor_can_it_be_touched(served: Served, method: str, path: str) -> None:
    await served.submitted(job_name="linear")
    before = (await served.admin.call("GET", "/api/v1/jobs/linear")).json()
    assert (await served.stranger.call(method, f"/api/v1/jobs/linear{path}")).status == 404
    assert (await served.admin.call("GET", "/api/v1/jobs/linear")).json() == before


async def test_cancel_and_delete_are_asked_for(served: Served) -> None:
    await served.submitted(job_name="linear")
    assert (await served.member.call("POST", "/api/v1/jobs/linear/cancel?grace=30s")).status == 200
    deleted = await served.member.call("DELETE", "/api/v1/jobs/linear")
    assert (deleted.status, deleted.json()["deleting"], deleted.json()["state"]) == (
        202,
        True,
        "deleting",
    )
    events = codec.decode(
        JobEvents, (await served.member.call("GET", "/api/v1/jobs/linear/events")).json()
    ).items
    assert [event.reason for event in events] == ["Submitted", "CancelRequested", "DeleteRequested"]
    later = (
        await served.member.call("GET", f"/api/v1/jobs/linear/events?after={events[0].id}")
    ).json()["items"]
    assert [event["reason"] for event in later] == ["CancelRequested", "DeleteRequested"]


async def test_a_saved_job_is_started(served: Served) -> None:
    saved = await served.submitted(job_name="linear", save_mode=True)
    assert (saved["phase"], saved["state"]) == ("Saved", "initial")
    assert (await served.member.call("POST", "/api/v1/jobs/linear/start")).status == 200
    served.move(saved["uid"], Phase.QUEUED)
    served.move(saved["uid"], Phase.STARTING)
    served.move(saved["uid"], Phase.SUCCEEDED)
    again = await served.member.call("POST", "/api/v1/jobs/linear/start")
    assert (again.status, again.json()["code"]) == (409, "conflict")


async def test_a_long_poll_answers_with_the_change(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    target = f"/api/v1/jobs/linear?wait=60&revision={job['revision']}"
    waiting = asyncio.ensure_future(served.member.call("GET", target))
    await asyncio.sleep(0)
    served.move(job["uid"], Phase.STARTING)
    answer = await asyncio.wait_for(waiting, 50)
    assert (answer.status, answer.json()["phase"]) == (200, "Starting")
    at_once = await asyncio.wait_for(served.member.call("GET", target), 50)
    assert at_once.json() == answer.json()


async def test_a_long_poll_without_a_change_answers_in_time(served: Served) -> None:
    await served.submitted(job_name="linear")
    answer = await asyncio.wait_for(served.member.call("GET", "/api/v1/jobs/linear?wait=0.01"), 60)
    assert answer.json()["phase"] == "Queued"


async def test_a_long_poll_ends_when_the_server_goes_down(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    waiting = asyncio.ensure_future(served.member.call("GET", "/api/v1/jobs/linear?wait=60"))
    await asyncio.sleep(0)
    served.platform.hub.close()
    assert (await asyncio.wait_for(waiting, 50)).json()["uid"] == job["uid"]


async def test_a_long_poll_ends_when_the_job_is_gone(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    target = f"/api/v1/jobs/linear?wait=60&revision={job['revision']}"
    waiting = asyncio.ensure_future(served.member.call("GET", target))
    while job["uid"] not in served.platform.hub._watches:
        await asyncio.sleep(0)
    served.store.delete(TRAIN_JOB, job["uid"], fence=None)
    assert (await asyncio.wait_for(waiting, 50)).status == 404


async def test_stacks_are_asked_of_tasks_that_run(served: Served) -> None:
    job = (await served.member.call("POST", "/api/v1/jobs", served.job())).json()
    path = f"/api/v1/jobs/{job['uid']}/stacks"
    answer = await served.member.call("POST", path)
    assert (answer.status, answer.json()["field"]) == (409, "phase")
    key = await served.run(job["uid"])
    answer = await served.member.call("POST", f"{path}?task=worker-9")
    assert (answer.status, answer.json()["allowed"]) == (404, "one of master-0")
    answer = await served.member.call("POST", f"{path}?task=master-0")
    assert (answer.status, answer.json()) == (202, {"attempt": 1, "tasks": ["master-0"]})
    assert b"stacks of master-0" in served.engine.machine.logs[key, "master-0"]


@pytest.mark.parametrize("wait", ["61", "-1", "nan", "inf", "soon"])
async def test_nobody_waits_for_longer_than_the_limit(served: Served, wait: str) -> None:
    await served.submitted(job_name="linear")
    answer = await served.member.call("GET", f"/api/v1/jobs/linear?wait={wait}")
    assert (answer.status, answer.json()["field"]) == (400, "wait")


async def test_the_log_is_plain_text_as_it_was_written(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    key = await served.run(job["uid"])
    served.engine.write(key, "master-0", "a\nß\n\xff".encode("latin-1"))
    answer = await served.member.call("GET", "/api/v1/jobs/linear/logs")
    assert (answer.status, answer.body) == (200, b"a\n\xdf\n\xff")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    tail = await served.member.call(
        "GET", "/api/v1/jobs/linear/logs?lines=1&attempt=1&task=master-0"
    )
    assert tail.body == b"\xff"


@pytest.mark.parametrize("query", ["lines=-1", "attempt=2", "task=worker-0", "lines=all"])
async def test_a_log_that_cannot_be_selected_is_refused(served: Served, query: str) -> None:
    await served.submitted(job_name="linear")
    answer = await served.member.call("GET", f"/api/v1/jobs/linear/logs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, query.partition("=")[0])


async def test_a_followed_log_is_sent_as_it_comes(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    async with served.member.open("/api/v1/jobs/linear/logs?follow=true") as exchange:
        assert exchange.status == 200
        chunks = exchange.chunks()
        served.move(job["uid"], Phase.STARTING)
        key = await served.run(job["uid"])
        for line in (b"one\n", b"two\n"):
            served.engine.write(key, "master-0", line)
            assert await asyncio.wait_for(anext(chunks), 60) == line
        served.engine.finish(key)
        served.move(job["uid"], Phase.SUCCEEDED)
        assert await asyncio.wait_for(anext(chunks, b"end"), 60) == b"end"


async def test_a_follower_that_hangs_up_leaves_nothing_behind(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    served.move(job["uid"], Phase.STARTING)
    key = await served.run(job["uid"])
    served.engine.write(key, "master-0", b"one\n")
    async with served.member.open("/api/v1/jobs/linear/logs?follow=true") as exchange:
        assert await asyncio.wait_for(anext(exchange.chunks()), 5) == b"one\n"
    assert not served.platform.hub._watches


async def test_followers_end_when_the_server_goes_down(served: Served) -> None:
    job = await served.submitted(job_name="linear")
    served.move(job["uid"], Phase.STARTING)
    await served.run(job["uid"])
    async with served.member.open("/api/v1/jobs/linear/logs?follow=true") as exchange:
        served.platform.hub.close()
        assert await asyncio.wait_for(anext(exchange.chunks(), b"end"), 5) == b"end"


async def test_a_job_that_has_not_started_has_no_tasks_yet(served: Served) -> None:
    await served.submitted(job_name="linear")
    answer = await served.member.call("GET", "/api/v1/jobs/linear/tasks")
    assert (answer.status, answer.json()) == (200, {"attempt": 1, "stages": {}, "items": []})


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("since=yesterday", "2026-01-31T12:00:00Z"),
        ("since=2026-01-31T12:00:00Z&lines=3", "nothing together with lines or offset"),
        ("since=2026-01-31T12:00:00Z&offset=3", "nothing together with lines or offset"),
        ("since=2026-01-31T12:00:00Z", "this engine does not note the time of output"),
    ],
)
async def test_since_when_a_log_is_wanted_must_be_clear(
    served: Served, query: str, message: str
) -> None:
    await served.submitted(job_name="linear")
    answer = await served.admin.call("GET", f"/api/v1/jobs/linear/logs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, "since")
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("labels", {"x" * 101: "a"}, "at most 100 characters"),
        ("labels", {"": "a"}, "at most 100 characters"),
        ("labels", {"a\x00b": "a"}, "without NUL"),
        ("labels", {"a": "x" * 257}, "at most 256 characters"),
        ("labels", {f"l{number}": "a" for number in range(65)}, "at most 64 labels"),
        ("framework", "x" * 129, "at most 128 characters"),
        ("output_path", "fds://cloudml/\x00", "without NUL"),
    ],
)
async def test_texts_that_no_database_or_file_can_hold_are_refused(
    served: Served, field: str, value: object, allowed: str
) -> None:
    answer = await served.admin.call("POST", "/api/v1/jobs", served.job(**{field: value}))
    error = answer.json()
    assert (answer.status, error["code"]) == (400, "invalid")
    assert error["field"].startswith(field)
    assert allowed in error["allowed"]


async def test_lists_of_times_at_the_ends_of_all_times(served: Served) -> None:
    await served.submitted()
    for parameters, count in (
        ("created_after=0001-01-01T00:00:00Z", 1), ("created_before=0001-01-01T00:00:00Z", 0),
        ("created_after=9999-12-31T23:59:59.999999Z", 0), ("created_before=9999-12-31T23:59:59.999999Z", 1),
    ):  # fmt: skip
        answer = await served.admin.call("GET", f"/api/v1/jobs?{parameters}")
        assert (answer.status, len(answer.json()["items"])) == (200, count), parameters
    for text in ("0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59"):
        assert (await served.admin.call("GET", f"/api/v1/jobs?created_after={text}")).status == 400


async def test_one_task_is_asked_for_by_its_name(served: Served) -> None:
    await served.submitted(job_name="linear")
    before = await served.member.call("GET", "/api/v1/jobs/linear/tasks/master-0")
    assert (before.status, before.json()["name"], before.json()["running"]) == (
        200,
        "master-0",
        False,
    )
    absent = await served.member.call("GET", "/api/v1/jobs/linear/tasks/worker-0")
    assert absent.status == 404
    assert "linear has no task worker-0" in absent.text
    for path in ("tasks/0", "tasks/maste-0", "logs?task=0"):
        answer = await served.member.call("GET", f"/api/v1/jobs/linear/{path}")
        assert "Did you mean master-0?" in answer.text, path


@pytest.mark.parametrize("what", ["cancel", "start", "pause", "resume", "stacks", "restart"])
async def test_what_stands_in_a_body_is_not_ignored(served: Served, what: str) -> None:
    """Who names a task there would else have all tasks restarted."""
    await served.submitted(job_name="linear")
    path = f"/api/v1/jobs/linear/{what}"
    refused = await served.member.call("POST", path, {"task": "worker-1"})
    assert (refused.status, refused.json()["field"]) == (400, "body")
    empty = await served.member.call("POST", path, {})
    assert empty.status != 400


async def test_one_task_is_restarted_where_its_recipe_can_go_on(served: Served) -> None:
    async def restart(job: dict[str, Any], task: str) -> Any:
        return await served.member.call("POST", f"/api/v1/jobs/{job['uid']}/restart?task={task}")

    array = await served.submitted(job_name="sweep", array="0-1")
    early = await restart(array, "task-0")
    assert (early.status, early.json()["field"]) == (409, "phase")
    assert "task-0 has not started yet" in early.json()["message"]
    key = GangKey(array["uid"], 1)
    tasks = tuple(ProcessPlan("task", index, ("fake", "wait")) for index in (0, 1))
    await served.engine.ensure(Gang(key, tenant=1, processes=tasks))
    served.move(array["uid"], Phase.STARTING)
    served.move(array["uid"], Phase.RUNNING)
    unknown = await restart(array, "task-9")
    assert (unknown.status, unknown.json()["allowed"]) == (404, "one of task-0, task-1")
    for _ in range(2):  # the second is the same wish, which nobody has fulfilled yet
        assert (await restart(array, "task-1")).status == 200
    restarts = served.platform.jobs.get(array["uid"]).spec.workload.requested_restarts
    assert restarts == (RequestedRestart(1, "task-1", 1),)
    events = (await served.member.call("GET", f"/api/v1/jobs/{array['uid']}/events")).json()
    messages = [one["message"] for one in events["items"] if one["reason"] == "RestartRequested"]
    assert len(messages) == 1
    assert messages[0].startswith("restart of task-1 requested by ")


@pytest.mark.parametrize("what", ["restart", "stacks"])
async def test_a_job_that_has_just_begun_is_known_to_run_when_it_is_asked(
    served: Served, what: str
) -> None:
    """Whoever has seen its first line asks before the server has noted that it runs."""
    array = await served.submitted(job_name="sweep", array="0-1")
    served.move(array["uid"], Phase.STARTING)
    path = f"/api/v1/jobs/sweep/{what}?task=task-1"
    request = asyncio.ensure_future(served.member.call("POST", path))
    while array["uid"] not in served.platform.hub._watches:
        assert not request.done(), request.result().text
        await asyncio.sleep(0)
    tasks = tuple(ProcessPlan("task", index, ("fake", "wait")) for index in (0, 1))
    await served.engine.ensure(Gang(GangKey(array["uid"], 1), tenant=1, processes=tasks))
    served.move(array["uid"], Phase.RUNNING)
    answer = await asyncio.wait_for(request, 50)
    assert answer.status < 300, answer.text


async def test_a_job_that_takes_long_to_start_has_no_task_to_restart(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await served.submitted(job_name="sweep", array="0-1")
    served.move(array["uid"], Phase.STARTING)
    unknown = await served.member.call("POST", "/api/v1/jobs/sweep/restart?task=task-9")
    assert unknown.status == 404
    path = "/api/v1/jobs/sweep/restart?task=task-1"
    with monkeypatch.context() as patched:
        patched.setattr(long_polls, "_BEGIN_S", 0.01)
        answer = await served.member.call("POST", path)
    assert (answer.status, answer.json()["field"]) == (409, "phase")
    assert "task-1 has not started yet" in answer.json()["message"]
    request = asyncio.ensure_future(served.member.call("POST", path))
    while array["uid"] not in served.platform.hub._watches:
        await asyncio.sleep(0)
    served.platform.hub.close()
    assert (await asyncio.wait_for(request, 50)).status == 409


async def test_a_task_whose_recipe_needs_all_of_them_is_not_restarted(served: Served) -> None:
    job = await served.submitted(job_name="alone")
    await served.run(job["uid"])
    served.move(job["uid"], Phase.STARTING)
    served.move(job["uid"], Phase.RUNNING)
    answer = await served.member.call("POST", "/api/v1/jobs/alone/restart?task=master-0")
    assert (answer.status, answer.json()["field"]) == (409, "task")
    assert "with recipe single, the other tasks would not go on" in answer.json()["message"]
    assert "cloudml jobs restart alone" in answer.json()["hint"]


async def test_a_task_of_an_elastic_job_is_not_restarted_alone(served: Served) -> None:
    elastic = {"worker": {"min": 2, "max": 8}}
    job = await served.submitted(job_name="grows", recipe="pytorch", elastic=elastic)
    tasks = tuple(ProcessPlan("worker", index, ("fake", "wait")) for index in (0, 1))
    await served.engine.ensure(Gang(GangKey(job["uid"], 1), tenant=1, processes=tasks))
    served.move(job["uid"], Phase.STARTING, ports=(20000, 20001), world={"worker": 2})
    served.move(job["uid"], Phase.RUNNING)
    for task, field in (("worker-1", "task"), ("worker-7", "phase")):
        answer = await served.member.call("POST", f"/api/v1/jobs/grows/restart?task={task}")
        assert (answer.status, answer.json()["field"]) == (409, field)


@pytest.mark.parametrize(
    ("recipe", "able"),
    [
        ("array", True),
        ("cluster", False),
        ("dask", True),
        ("jax", False),
        ("lightgbm", False),
        ("mpi", False),
        ("pytorch", False),
        ("tensorflow", False),
        ("xgboost", False),
    ],
)
async def test_every_recipe_says_whether_it_can_go_on(
    served: Served, recipe: str, able: bool
) -> None:
    fields: dict[str, Any] = {"array": "0-2"} if recipe == "array" else {"worker_count": 3}
    job = await served.submitted(job_name="any", recipe=recipe, **fields)
    workload = served.platform.jobs.get(job["uid"]).spec.workload
    task = workload.tasks[-1]
    assert task in ("task-2", "worker-2")
    role, _, index = task.partition("-")
    plan = ProcessPlan(role, int(index), ("fake", "wait"))
    await served.engine.ensure(Gang(GangKey(job["uid"], 1), tenant=1, processes=(plan,)))
    ports = tuple(range(20_000, 20_000 + workload.port_count))
    served.move(job["uid"], Phase.STARTING, ports=ports)
    served.move(job["uid"], Phase.RUNNING)
    answer = await served.member.call("POST", f"/api/v1/jobs/any/restart?task={task}")
    assert answer.status == (200 if able else 409), answer.text
    assert able or answer.json()["field"] == "task"


def test_every_recipe_has_a_row() -> None:
    (rows,) = (
        mark.args[1]
        for mark in test_every_recipe_says_whether_it_can_go_on.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    )
    assert sorted(recipe for recipe, _ in rows) == sorted(RECIPE_NAMES)

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.models import codec
from cloud_ml.models.job import Job, JobEvents, JobPage
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
    ("query", "told"),
    [
        ("since=yesterday", "2026-01-31T12:00:00Z"),
        ("since=2026-01-31T12:00:00Z&lines=3", "nothing together with lines or offset"),
        ("since=2026-01-31T12:00:00Z&offset=3", "nothing together with lines or offset"),
        ("since=2026-01-31T12:00:00Z", "this engine does not note the time of output"),
    ],
)
async def test_since_when_a_log_is_wanted_must_be_clear(
    served: Served, query: str, told: str
) -> None:
    await served.submitted(job_name="linear")
    answer = await served.admin.call("GET", f"/api/v1/jobs/linear/logs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, "since")
    assert told in answer.json()["message"]


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
    told = answer.json()
    assert (answer.status, told["code"]) == (400, "invalid")
    assert told["field"].startswith(field)
    assert allowed in told["allowed"]


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

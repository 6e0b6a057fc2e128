"""The original wire's train jobs, as its client uses them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.domain.workloads.phases import Phase
from support.platform import Served

pytestmark = pytest.mark.anyio

TRAIN = "/cloud_ml/v1/train"


async def submitted(served: Served, **fields: Any) -> dict[str, Any]:
    body = {**served.job(), "enable_rank": 0, "save_mode": False, **fields}
    answer = await served.member.original("POST", TRAIN, body)
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def events(served: Served, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await served.member.original("GET", f"{TRAIN}/{name}/events")
    ).json()["events"]
    return found


def uid_of(served: Served, name: str) -> str:
    return served.platform.jobs.find("default", name).key.uid


async def test_a_job_is_submitted_described_and_listed(served: Served) -> None:
    made = await submitted(served, job_name="linear", gpu_limit=0, cpu_limit="0.5")
    assert (made["state"], made["org_id"], made["org_name"]) == ("enqueued", "1", "default")
    assert (await served.member.original("GET", f"{TRAIN}/linear")).json() == made
    listed = (await served.member.original("GET", TRAIN)).json()["data"]
    assert [row["job_name"] for row in listed] == ["linear"]
    assert all(value is not None for value in listed[0].values())


@pytest.mark.parametrize(
    "target", ["/cloud_ml//v1/train", "//cloud_ml/v1/train", "/cloud_ml/v1//train/"]
)
async def test_careless_slashes_are_signed_and_routed(served: Served, target: str) -> None:
    assert (await served.member.original("GET", target)).json() == {"data": []}


async def test_unknown_fields_are_let_pass_and_noted(served: Served) -> None:
    await submitted(served, job_name="linear", argo_mode=True, **{f"x{i}": i for i in range(25)})
    notes = [event for event in await events(served, "linear") if event["type"] == "Warning"]
    assert len(notes) == 21
    assert "'argo_mode'" in notes[0]["message"]
    assert "6 more" in notes[-1]["message"]
    assert {event["reason"] for event in notes} == {"FieldIgnored"}


async def test_the_output_path_becomes_no_argument(served: Served) -> None:
    """Of a job that came another way it does, where the code has such a flag."""
    jobs, uri = served.platform.jobs, "fds://cloudml/o"
    await submitted(served, job_name="original", output_path=uri)
    modern = await served.member.call(
        "POST", "/api/v1/jobs", served.job(job_name="modern", output_path=uri)
    )
    assert modern.status == 201
    added = {
        name: jobs.find("default", name).spec.workload.program.output_path
        for name in ("original", "modern")
    }
    assert added == {"original": "", "modern": uri}


async def test_a_uri_in_an_unknown_bucket_is_an_event_and_no_refusal(served: Served) -> None:
    fields = {"job_args": "--out=fds://nowhere/x"}
    await submitted(served, job_name="linear", **fields)
    (warning,) = [event for event in await events(served, "linear") if event["type"] == "Warning"]
    assert warning["reason"] == "UnknownBucket"
    assert warning["message"] == "--out is fds://nowhere/x, but there is no bucket nowhere"
    refused = await served.member.call("POST", "/api/v1/jobs", served.job(**fields))
    assert (refused.status, refused.json()["field"]) == (400, "job_args")


async def test_what_cannot_be_done_is_refused_in_one_line(served: Served) -> None:
    answer = await served.member.original("POST", TRAIN, served.job(ps_count=2, worker_count=2))
    assert (answer.status, answer.json()["error"]) == (400, True)
    assert "ps_count" in answer.json()["message"]
    assert "\n" not in answer.text


async def test_a_repeated_submit_is_a_conflict(served: Served) -> None:
    await submitted(served, job_name="linear")
    served.clock.advance(1)  # the same bytes in the same second would be a replay
    answer = await served.member.original("POST", TRAIN, served.job(job_name="linear"))
    assert (answer.status, answer.json()["code"]) == (409, "already_exists")


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ([Phase.STARTING], "creating"),
        ([Phase.STARTING, Phase.RUNNING], "running"),
        ([Phase.STARTING, Phase.RUNNING, Phase.FINISHING], "running"),
        ([Phase.STARTING, Phase.RUNNING, Phase.STOPPING], "deleting"),
        ([Phase.STARTING, Phase.SUCCEEDED], "completed"),
        ([Phase.STARTING, Phase.FAILED], "failed"),
        ([Phase.STOPPED], "failed"),
    ],
)
async def test_phases_have_the_words_of_the_original(
    served: Served, path: list[Phase], state: str
) -> None:
    await submitted(served, job_name="linear")
    for phase in path:
        served.move(uid_of(served, "linear"), phase, reason="NonZeroExit", message="exit code 1")
    described = (await served.member.original("GET", f"{TRAIN}/linear")).json()
    assert described["state"] == state
    assert described["message"] == "NonZeroExit: exit code 1"
    assert (await served.member.original("GET", TRAIN)).json()["data"][0]["state"] == state


async def test_a_saved_job_is_started_by_a_get(served: Served) -> None:
    assert (await submitted(served, job_name="linear", save_mode=True))["state"] == "initial"
    answer = await served.member.original("GET", f"{TRAIN}/linear/start")
    assert (answer.status, answer.json()["job_name"], answer.json()["state"]) == (
        200,
        "linear",
        "enqueuing",
    )
    assert [event["reason"] for event in await events(served, "linear")] == [
        "Saved",
        "StartRequested",
    ]


@pytest.mark.parametrize("query", ["", "?is_cluster_name=True"])
async def test_delete_answers_an_object(served: Served, query: str) -> None:
    await submitted(served, job_name="linear")
    answer = await served.member.original("DELETE", f"{TRAIN}/linear{query}")
    assert (answer.status, answer.json()["state"]) == (200, "deleting")
    assert (await served.member.original("GET", f"{TRAIN}/linear")).json()["state"] == "deleting"


async def test_events_have_every_key_that_is_printed(served: Served) -> None:
    await submitted(served, job_name="linear")
    document = (await served.member.original("GET", f"{TRAIN}/linear/events")).json()
    for event in document["events"]:
        assert event["involvedObject"] == {"name": "linear"}
        assert event["count"] == 1
        for key in ("firstTimestamp", "lastTimestamp", "type", "reason", "message"):
            assert isinstance(event[key], str)


@pytest.mark.parametrize(
    "rest", ["", "/logs", "/logs?follow=True", "/events", "/metrics", "/hyperparameters", "/start"]
)
async def test_what_is_absent_or_foreign_is_refused_alike(served: Served, rest: str) -> None:
    await submitted(served, job_name="linear")
    answers = {
        name: await served.stranger.original("GET", f"{TRAIN}/{name}{rest}")
        for name in ("linear", "never")
    }
    assert {answer.status for answer in answers.values()} == {404}
    assert len({answer.text.replace(name, "N") for name, answer in answers.items()}) == 1
    assert all(answer.json()["error"] is True for answer in answers.values())


async def test_a_job_is_no_tuning(served: Served) -> None:
    await submitted(served, job_name="linear")
    answer = await served.member.original("GET", f"{TRAIN}/linear/hyperparameters")
    assert (answer.status, answer.json()["error"]) == (404, True)


async def test_logs_are_json_and_need_no_whole_text_in_memory(served: Served) -> None:
    await submitted(served, job_name="linear")
    key = await served.run(uid_of(served, "linear"))
    served.engine.write(key, "master-0", 'a "quoted" ß\nü'.encode() + b"\xff\n\x00")
    answer = await served.member.original("GET", f"{TRAIN}/linear/logs")
    assert answer.json() == {"logs": 'a "quoted" ß\nü\ufffd\n\x00'}
    last = await served.member.original("GET", f"{TRAIN}/linear/logs?lines=1")
    assert last.json() == {"logs": "\x00"}
    assert "error" not in answer.json()


async def test_letters_cut_between_chunks_stay_whole(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(served, job_name="linear")
    await served.run(uid_of(served, "linear"))

    async def byte_by_byte(*args: object, **kwargs: object) -> Any:
        for byte in "ü北😀".encode():
            yield bytes([byte])

    monkeypatch.setattr(served.engine, "logs", byte_by_byte)
    assert (await served.member.original("GET", f"{TRAIN}/linear/logs")).json() == {"logs": "ü北😀"}


@pytest.mark.parametrize("lines", ["-1", "x", "1.5"])
async def test_a_bad_number_of_lines_is_named(served: Served, lines: str) -> None:
    await submitted(served, job_name="linear")
    answer = await served.member.original("GET", f"{TRAIN}/linear/logs?lines={lines}")
    assert (answer.status, answer.json()["field"]) == (400, "lines")


async def test_a_followed_log_is_a_plain_stream_until_the_end(served: Served) -> None:
    await submitted(served, job_name="linear")
    uid = uid_of(served, "linear")
    async with served.member.open_original(f"{TRAIN}/linear/logs?follow=True&lines=1") as exchange:
        assert exchange.headers["content-type"].startswith("text/plain")
        chunks = exchange.chunks()
        served.move(uid, Phase.STARTING)
        key = await served.run(uid)
        served.engine.write(key, "master-0", b"step 1\n")
        assert await asyncio.wait_for(anext(chunks), 60) == b"step 1\n"
        served.engine.finish(key)
        served.move(uid, Phase.SUCCEEDED)
        assert await asyncio.wait_for(anext(chunks, b"end"), 60) == b"end"


async def test_metrics_are_numbers_also_for_a_job_that_waits(served: Served) -> None:
    await submitted(served, job_name="linear")
    document = (await served.member.original("GET", f"{TRAIN}/linear/metrics")).json()
    assert document == {"cpu": 0, "memory": 0, "network_receive": 0, "network_transmit": 0}


async def test_an_administrator_sees_all_organisations(served: Served) -> None:
    await submitted(served, job_name="linear")
    await served.submitted(served.stranger, job_name="theirs", trainer_uri="fds://others/t.tar.gz")
    rows = (await served.admin.original("GET", f"{TRAIN}?org_id=-1")).json()["data"]
    assert [(row["job_name"], row["org_id"], row["org_name"]) for row in rows] == [
        ("theirs", "2", "other"),
        ("linear", "1", "default"),
    ]
    theirs = await served.admin.original("GET", f"{TRAIN}/theirs?org_id=2")
    assert (theirs.json()["org_name"], theirs.json()["job_name"]) == ("other", "theirs")
    assert (await served.member.original("GET", f"{TRAIN}?org_id=-1")).status == 403
    assert (await served.member.original("GET", f"{TRAIN}?org_id=2")).status == 404


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b'{"job_name": 1}'])
async def test_a_body_that_is_no_job_is_refused(served: Served, body: bytes) -> None:
    headers = served.member.sign_original(TRAIN, body)
    answer = await served.client.send("POST", TRAIN, headers, body)
    assert (answer.status, answer.json()["error"]) == (400, True)

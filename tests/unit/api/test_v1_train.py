"""The original wire's train jobs, as its client uses them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase
from support.event_files import SLIDE
from support.platform import TRAINER, Served

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
    answer = await served.member.original(
        "POST", TRAIN, served.job(docker_image="a", docker_command="b")
    )
    assert (answer.status, answer.json()["error"]) == (400, True)
    assert "docker_image" in answer.json()["message"]
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


async def test_a_tuning_is_a_study_that_answers_as_a_job(served: Served) -> None:
    request = {**SLIDE, "trainer_uri": TRAINER}
    answer = await served.member.original("POST", TRAIN, request)
    assert answer.status == 200, answer.text
    made = answer.json()
    assert (made["job_name"], made["state"], made["job_args"]) == (
        "linear37",
        "running",
        "--max_epochs 5000",
    )
    assert made["hyperparameters_goal"] == "MINIMIZE"
    plain = (await submitted(served, job_name="plain")).keys()
    assert plain <= made.keys(), "every key that the client prints"
    described = await served.member.original("GET", f"{TRAIN}/linear37")
    assert described.json() == made
    report = await served.member.original("GET", f"{TRAIN}/linear37/hyperparameters")
    assert report.json() == {
        "goal": "MINIMIZE",
        "trialCount": 4,
        "best_trials": {"metric": None, "params": "", "step": None, "state": ""},
        "trials": [],
    }
    served.clock.advance(1)
    again = await served.member.original("POST", TRAIN, request)
    assert again.status == 409
    taken = {**request, "job_name": "plain"}
    assert (await served.member.original("POST", TRAIN, taken)).status == 409
    foreign = await served.stranger.original("GET", f"{TRAIN}/linear37/hyperparameters")
    assert foreign.status == 404


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"goal": "BEST"}, "hyperparameters.goal"),
        ({"params": []}, "hyperparameters.params"),
        ({"params": [3]}, "hyperparameters.params[0]"),
        ({"params": [{"a b": 1}]}, "trials[0]"),
        ({"params": [{"lr": {}}]}, "trials[0].lr"),
        ({"output_path": 3}, "hyperparameters.output_path"),
        ({"trials": 3}, "hyperparameters.trials"),
    ],
)
async def test_a_tuning_that_cannot_be_is_refused_by_its_field(
    served: Served, wrong: dict[str, Any], field: str
) -> None:
    request = {
        **SLIDE,
        "trainer_uri": TRAINER,
        "hyperparameters": {**SLIDE["hyperparameters"], **wrong},
    }
    answer = await served.member.original("POST", TRAIN, request)
    assert (answer.status, answer.json()["field"]) == (400, field), answer.text


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


async def test_every_task_is_a_member_of_its_cluster(served: Served) -> None:
    whole = await submitted(served, job_name="linear", ps_count=2, worker_count=2)
    assert (whole["job_name"], whole["cluster_name"]) == ("linear", "linear")
    for member in ("master-0", "worker-0", "worker-1", "ps-0", "ps-1"):
        document = (await served.member.original("GET", f"{TRAIN}/linear-{member}")).json()
        assert document["job_name"] == f"linear-{member}"
        assert (document["cluster_name"], document["state"]) == ("linear", "enqueued")
        assert set(document) == set(whole)
    answer = (await served.member.original("GET", f"{TRAIN}/linear-ps-1/events")).json()
    assert answer["events"][0]["involvedObject"] == {"name": "linear-ps-1"}
    for other in ("linear-ps-2", "linear-ps", "linear-evaluator-0"):
        assert (await served.member.original("GET", f"{TRAIN}/{other}")).status == 404


async def test_the_list_has_each_job_before_its_members(served: Served) -> None:
    await submitted(served, job_name="alone")
    await submitted(served, job_name="linear", worker_count=2, recipe="cluster")
    for _ in range(2):  # what is remembered of the first look changes nothing
        rows = (await served.member.original("GET", TRAIN)).json()["data"]
        assert [(row["job_name"], row["state"]) for row in rows] == [
            ("linear", "enqueued"), ("linear-worker-0", "enqueued"),
            ("linear-worker-1", "enqueued"), ("alone", "enqueued"),
        ]  # fmt: skip
        assert {frozenset(row) for row in rows} == {frozenset(rows[0])}


async def test_a_long_list_has_jobs_without_their_members(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_ml.api.v1_compat.train._MOST_ROWS", 3)
    for name in ("first", "second"):
        await submitted(served, job_name=name, worker_count=2, recipe="cluster")
    rows = (await served.member.original("GET", TRAIN)).json()["data"]
    names = [row["job_name"] for row in rows]
    assert names == ["second", "second-worker-0", "second-worker-1", "first"]


async def test_a_member_has_its_port_and_the_cluster_as_it_reads_it(served: Served) -> None:
    await submitted(served, job_name="linear", worker_count=1, recipe="cluster")
    platform = served.platform
    record = platform.jobs.find("default", "linear")
    status = replace(record.status, phase=Phase.STARTING, ports=(20007,))
    platform.store.commit_status(
        TRAIN_JOB,
        record.key.uid,
        status,
        expected_revision=record.revision,
        fence=None,
        now=platform.clock(),
        events=[],
    )
    member = (await served.member.original("GET", f"{TRAIN}/linear-worker-0")).json()
    assert member["service_port"] == 20007
    name, _, config = member["cluster_env_var"].partition("=")
    assert name == "TF_CONFIG"
    assert json.loads(config) == {
        "cluster": {"worker": ["worker-0:20007"]},
        "task": {"type": "worker", "index": 0},
    }


async def test_members_for_which_an_elastic_job_has_no_room_wait(served: Served) -> None:
    await submitted(served, job_name="linear", worker_count="1:2", recipe="pytorch")
    platform = served.platform
    record = platform.jobs.find("default", "linear")
    status = replace(record.status, phase=Phase.RUNNING, ports=(20007,), world={"worker": 1})
    platform.store.commit_status(
        TRAIN_JOB,
        record.key.uid,
        status,
        expected_revision=record.revision,
        fence=None,
        now=platform.clock(),
        events=[],
    )
    first = (await served.member.original("GET", f"{TRAIN}/linear-worker-0")).json()
    assert (first["state"], first["service_port"]) == ("running", 20007)
    second = (await served.member.original("GET", f"{TRAIN}/linear-worker-1")).json()
    assert (second["state"], second["service_port"]) == ("enqueued", None)
    assert set(second) == set(first)


async def test_the_name_of_a_cluster_deletes_all_of_its_members(served: Served) -> None:
    await submitted(served, job_name="linear", worker_count=2, recipe="cluster")
    await submitted(served, job_name="linear-2", worker_count=1, recipe="cluster")
    answer = await served.member.original("DELETE", f"{TRAIN}/linear?is_cluster_name=True")
    assert (answer.status, answer.json()["job_name"]) == (200, "linear")
    for name in ("linear", "linear-worker-0", "linear-worker-1"):
        found = (await served.member.original("GET", f"{TRAIN}/{name}")).json()
        assert (found["job_name"], found["state"]) == (name, "deleting")
    other = (await served.member.original("GET", f"{TRAIN}/linear-2-worker-0")).json()
    assert other["state"] == "enqueued"


async def test_a_member_is_not_deleted_alone(served: Served) -> None:
    await submitted(served, job_name="linear", worker_count=1)
    for query in ("", "?is_cluster_name=True"):
        answer = await served.member.original("DELETE", f"{TRAIN}/linear-worker-0{query}")
        assert (answer.status, "belongs to linear" in answer.json()["message"]) == (409, True)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"job_name": "linear", "worker_count": 2},
            {"job_name": "linear-worker-1"},
            "it is the task worker-1 of the job linear",
        ),
        (
            {"job_name": "linear-worker-1"},
            {"job_name": "linear", "worker_count": 2},
            "its task worker-1 would have the name of the job linear-worker-1",
        ),
        ({"job_name": "linear-worker-1"}, {"job_name": "linear"}, ""),
        (
            {"job_name": "linear-a", "cluster_spec": {"b": {"count": 2}}, "recipe": "cluster"},
            {"job_name": "linear", "cluster_spec": {"a-b": {"count": 2}}, "recipe": "cluster"},
            "its task a-b-0 and the task b-0 of the job linear-a would both be linear-a-b-0",
        ),
        (
            {"job_name": "linear", "cluster_spec": {"a-b": {"count": 2}}, "recipe": "cluster"},
            {"job_name": "linear-a", "cluster_spec": {"b": {"count": 2}}, "recipe": "cluster"},
            "its task b-0 and the task a-b-0 of the job linear would both be linear-a-b-0",
        ),
        ({"job_name": "linear"}, {"job_name": "a" * 60, "worker_count": 1}, "too long"),
    ],
)
async def test_names_of_members_are_nobody_elses(
    served: Served, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    await submitted(served, **first)
    answer = await served.member.original("POST", TRAIN, {**served.job(), **second})
    assert answer.status == (409 if message else 200)
    assert message in answer.text
    if "would" in message or "is the task" in message:
        assert f"remove the job {first['job_name']}: cloudml jobs delete {first['job_name']}" in (
            answer.text
        )

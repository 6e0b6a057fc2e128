"""Lists of jobs, narrowed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from cloud_ml.domain.workloads.phases import Phase
from support.platform import Served

pytestmark = pytest.mark.anyio


async def names(served: Served, **filters: Any) -> list[str]:
    query = urlencode(filters, doseq=True)
    answer = await served.member.call("GET", f"/api/v1/jobs?{query}")
    assert answer.status == 200, answer.text
    return [line["name"] for line in answer.json()["items"]]


@pytest.fixture
async def filled(served: Served) -> Served:
    await served.submitted(
        job_name="linear-1", framework="tensorflow", labels={"team": "a=b c", "who": "x"}
    )
    served.clock.advance(60)
    await served.submitted(served.member, job_name="linear-2", labels={"team": "a"})
    served.clock.advance(60)
    job = await served.submitted(job_name="tree", labels={"team": "a"})
    served.move(job["uid"], Phase.STARTING)
    served.move(job["uid"], Phase.RUNNING, runtime="python 3.11")
    await served.submitted(
        served.stranger,
        job_name="linear-3",
        trainer_uri="fds://others/t.tar.gz",
        labels={"team": "a"},
    )
    return served


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["tree", "linear-2", "linear-1"]),
        ({"name": "linear-1"}, ["linear-1"]),
        ({"name": "linear"}, []),
        ({"name": "linear*"}, ["linear-2", "linear-1"]),
        ({"name": "*"}, ["tree", "linear-2", "linear-1"]),
        ({"framework": "tensorflow"}, ["linear-1"]),
        ({"framework": "python"}, ["tree"]),
        ({"user": "mei"}, ["linear-2"]),
        ({"label": "team=a"}, ["tree", "linear-2"]),
        ({"label": ["team=a=b c", "who=x"]}, ["linear-1"]),
        ({"label": ["team=a", "who=x"]}, []),
        ({"created_after": "2026-11-20T12:01:00Z"}, ["tree", "linear-2"]),
        ({"created_before": "2026-11-20T20:01:00.250+08:00"}, ["linear-1"]),
        (
            {"created_after": "2026-11-20T12:01:00Z", "state": "running", "label": "team=a"},
            ["tree"],
        ),
        (
            {"name": "", "framework": "", "user": "", "created_after": ""},
            ["tree", "linear-2", "linear-1"],
        ),
    ],
)
async def test_jobs_are_found(filled: Served, filters: dict[str, Any], expected: list[str]) -> None:
    assert await names(filled, **filters) == expected


async def test_details_are_sent_on_request(filled: Served) -> None:
    job = await filled.submitted(filled.member, job_name="fails", job_args="--lr '0 1'")
    filled.move(job["uid"], Phase.STARTING)
    filled.move(
        job["uid"],
        Phase.FAILED,
        reason="NonZeroExit",
        message="ended",
        exit_code=2,
        started_at=filled.clock(),
    )
    answer = await filled.member.call("GET", "/api/v1/jobs?limit=2&details=true")
    failed, running = (line["details"] for line in answer.json()["items"])
    assert (failed["reason"], failed["message"], failed["exit_code"]) == ("NonZeroExit", "ended", 2)
    assert (failed["arguments"], failed["started_at"]) == (
        ["--lr", "0 1"],
        "2026-11-20T12:02:00.250000Z",
    )
    assert (running["exit_code"], running["runtime"], running["arguments"]) == (
        None,
        "python 3.11",
        [],
    )
    plain = await filled.member.call("GET", "/api/v1/jobs")
    assert {line["details"] for line in plain.json()["items"]} == {None}


async def test_details_of_huge_jobs_are_bounded(filled: Served) -> None:
    await filled.submitted(filled.member, job_name="huge", job_args=["short", "x" * 60_000, "y"])
    answer = await filled.member.call("GET", "/api/v1/jobs?limit=1&details=true")
    (line,) = answer.json()["items"]
    assert line["details"]["arguments"] == ["short", "…"]
    most = filled.platform.settings.list_details_limit
    refused = await filled.member.call("GET", f"/api/v1/jobs?limit={most + 1}&details=true")
    assert (refused.status, refused.json()["field"]) == (400, "limit")


async def test_an_administrator_finds_in_all_organisations(filled: Served) -> None:
    answer = await filled.admin.call("GET", "/api/v1/jobs?label=team%3Da&name=linear*&org_id=-1")
    assert [line["name"] for line in answer.json()["items"]] == ["linear-3", "linear-2"]


async def test_pages_of_what_is_found_follow_each_other(served: Served) -> None:
    for number in range(6):
        await served.submitted(labels={"even": str(number % 2 == 0)})
    found: list[str] = []
    after = ""
    for _ in range(2):
        answer = await served.member.call("GET", f"/api/v1/jobs?label=even%3DTrue&limit=2{after}")
        found += [line["name"] for line in answer.json()["items"]]
        after = f"&after={answer.json()['next']}"
    assert (found, answer.json()["next"]) == (["linear-5", "linear-3", "linear-1"], None)


@pytest.mark.parametrize(
    "query",
    [
        "name=Linear", "name=*linear", "name=a**", "label=team", "label==x", "label=", "created_after=yesterday",
        "created_before=2026-01-31", "created_after=2026-01-31T12:00:00", "created_before=9999-12-31T23:59:59-23:00",
        "framework=%00", f"user={'x' * 200}", "&".join(["label=a%3Db"] * 11),
    ],
)  # fmt: skip
async def test_a_malformed_condition_is_named(served: Served, query: str) -> None:
    answer = await served.member.call("GET", f"/api/v1/jobs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, query.partition("=")[0])
    assert answer.json()["allowed"]


@pytest.mark.parametrize(
    ("query", "near"), [("labels=a%3Db", "label"), ("created=x", "created_after"), ("x=1", "")]
)
async def test_an_unknown_parameter_is_refused(served: Served, query: str, near: str) -> None:
    answer = await served.member.call("GET", f"/api/v1/jobs?{query}")
    assert (answer.status, answer.json()["field"]) == (400, query.partition("=")[0])
    assert near in answer.json()["message"]


async def test_a_parameter_that_is_given_twice_is_refused(served: Served) -> None:
    answer = await served.member.call("GET", "/api/v1/jobs?limit=1&limit=2")
    assert (answer.status, answer.json()["field"]) == (400, "limit")


async def test_the_original_wire_lets_unknown_parameters_pass(served: Served) -> None:
    assert (
        await served.member.original("GET", "/cloud_ml/v1/train?is_cluster_name=1&x=y")
    ).status == 200

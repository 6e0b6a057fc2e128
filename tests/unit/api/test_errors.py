from __future__ import annotations

import json

import pytest

from cloud_ml import errors as tree
from cloud_ml.api import errors
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    InvalidRequest,
    OutOfSpace,
    StaleRevision,
    Unavailable,
)
from support.platform import Served

STATUSES = {
    "invalid": 400,
    "bad_request": 400,
    "unauthenticated": 401,
    "seen_before": 401,
    "forbidden": 403,
    "quota_exceeded": 403,
    "not_found": 404,
    "already_exists": 409,
    "conflict": 409,
    "precondition_failed": 412,
    "start_again": 410,
    "too_large": 413,
    "too_many": 429,
    "damaged": 500,
    "internal": 500,
    "wait_timed_out": 500,
    "transport": 502,
    "try_again": 503,
    "stale_revision": 503,
    "fence_lost": 503,
    "unavailable": 503,
    "out_of_space": 507,
}
EVERY = [
    kind
    for kind in vars(tree).values()
    if isinstance(kind, type) and issubclass(kind, CloudMlError)
]


@pytest.mark.parametrize("kind", EVERY)
def test_every_error_has_its_status(kind: type[CloudMlError]) -> None:
    assert errors.status_of(kind("it did not work")) == STATUSES[kind.code]


def test_an_error_that_may_pass_says_when_to_come_back() -> None:
    assert errors.answer(Unavailable("no")).headers["retry-after"] == "1"
    assert errors.answer(StaleRevision("no")).headers["retry-after"] == "1"
    assert errors.answer(OutOfSpace("no")).headers["retry-after"] == "10"
    assert "retry-after" not in errors.answer(InvalidRequest("no")).headers


def test_the_document_is_one_line_that_names_the_fault() -> None:
    answer = errors.answer(
        InvalidRequest("no\ngood", field="cpu_limit", value="ä", allowed="2", hint="ask")
    )
    assert b"\n" not in bytes(answer.body)
    assert json.loads(bytes(answer.body)) == {
        "error": True,
        "code": "invalid",
        "message": "no\ngood",
        "field": "cpu_limit",
        "value": "ä",
        "allowed": "2",
        "hint": "ask",
    }


def test_a_taken_name_says_by_what() -> None:
    assert (
        json.loads(bytes(errors.answer(AlreadyExists("no", same_spec=True)).body))["same_spec"]
        is True
    )


def test_a_megabyte_is_not_sent_back() -> None:
    answer = errors.answer(InvalidRequest("x" * 2**20, field="f" * 2**20, value={"a": "y" * 2**20}))
    assert len(answer.body) < 5000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/api/v2/jobs", 404, "not_found"),
        ("GET", "/cloud_ml/v1/nothing", 404, "not_found"),
        ("PATCH", "/api/v1/jobs", 405, "method_not_allowed"),
        ("PUT", "/cloud_ml/v1/train", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_there_is_refused_by_the_same_document(
    served: Served, method: str, target: str, status: int, code: str
) -> None:
    answer = await served.client.send(method, target)
    assert (answer.status, answer.json()["error"], answer.json()["code"]) == (status, True, code)
    assert answer.headers["x-request-id"]
    assert "\n" not in answer.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("DELETE", "/api/v1/jobs", "GET, POST"),
        ("PUT", "/api/v1/jobs/x", "DELETE, GET"),
        ("PUT", "/cloud_ml/v1/train", "GET, POST"),
    ],
)
async def test_a_method_that_is_refused_names_all_that_are_possible(
    served: Served, method: str, target: str, allowed: str
) -> None:
    answer = await served.client.send(method, target)
    assert (answer.status, answer.json()["allowed"]) == (405, allowed)
    assert answer.headers["allow"] == allowed


@pytest.mark.anyio
async def test_a_parameter_that_is_wrong_is_named(served: Served) -> None:
    answer = await served.admin.call("GET", "/api/v1/jobs?limit=many")
    assert answer.status == 400
    assert (answer.json()["code"], answer.json()["field"], answer.json()["value"]) == (
        "invalid",
        "limit",
        "many",
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        ("limit=0", "1 or more"),
        (f"after={2**63}", f"{2**62} or less"),
        ("limit=many", "a whole number"),
        ("details=perhaps", "true or false"),
    ],
)
async def test_a_parameter_that_is_wrong_says_what_it_may_be(
    served: Served, query: str, allowed: str
) -> None:
    answer = (await served.admin.call("GET", f"/api/v1/jobs?{query}")).json()
    assert answer["allowed"] == allowed
    assert answer["message"].endswith(f"; allowed is {answer['allowed']}")


@pytest.mark.anyio
async def test_a_path_of_the_server_is_in_its_log_only(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    message = "The disk of the server's database is full"
    served.store.fail_writes(OutOfSpace("no room on /data/state.db", public_message=message))
    refused = await served.admin.call("POST", "/api/v1/jobs", served.job())
    assert refused.json()["message"] == message
    assert "/data/state.db" not in refused.text
    assert "/data/state.db" in caplog.text


@pytest.mark.anyio
async def test_a_fault_of_ours_is_answered_without_its_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(served.platform.jobs, "list", broken)
    answer = await served.admin.call("GET", "/api/v1/jobs")
    assert answer.status == 500
    assert "secret detail" not in answer.text
    assert answer.json()["code"] == "internal"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] in caplog.text
    assert "secret detail" in caplog.text


@pytest.mark.anyio
async def test_a_full_disk_refuses_work_and_answers_reads(served: Served) -> None:
    await served.submitted(job_name="linear")
    served.store.fail_writes(OutOfSpace("the disk is full"))
    refused = await served.admin.call("POST", "/api/v1/jobs", served.job())
    assert (refused.status, refused.json()["code"], refused.headers["retry-after"]) == (
        507,
        "out_of_space",
        "10",
    )
    assert (await served.admin.call("GET", "/api/v1/jobs/linear")).status == 200
    served.store.fail_writes(None)
    assert (await served.admin.call("POST", "/api/v1/jobs", served.job())).status == 201


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("OPTIONS", "/api/v1/jobs", 405, "method_not_allowed"),
        ("PATCH", "/api/v1/jobs", 405, "method_not_allowed"),
        ("BREW", "/api/v1/jobs/x", 405, "method_not_allowed"),
        ("GET", "/api/v2/jobs", 404, "not_found"),
        ("GET", "/api/v1/jobs/", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
    ],
)
async def test_what_is_not_there_is_refused_in_the_one_shape(
    served: Served, method: str, target: str, status: int, code: str
) -> None:
    answer = await served.client.send(method, target, {"Origin": "https://elsewhere.example"})
    document = answer.json()
    assert (answer.status, document["code"], document["error"], document["request_id"]) == (
        status,
        code,
        True,
        "test",
    )
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    if status == 405:
        assert document["allowed"] == answer.headers["allow"]

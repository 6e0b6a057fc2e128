"""What an operator sees of requests: metrics and the log."""

from __future__ import annotations

import logging
import re

import pytest

from cloud_ml.settings import ApiSettings
from support.platform import Served

pytestmark = pytest.mark.anyio


async def scrape(served: Served) -> dict[str, float]:
    answer = await served.client.send("GET", "/metrics")
    assert (answer.status, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert all(
        re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+', line)
        for line in lines
    )
    return {name: float(number) for name, _, number in (line.rpartition(" ") for line in lines)}


async def test_requests_and_jobs_are_counted(served: Served) -> None:
    await served.submitted(job_name="linear")
    await served.member.call("GET", "/api/v1/jobs/linear")
    await served.member.call("GET", "/api/v1/jobs/never")
    await served.client.send("GET", "/no/such/place")
    found = await scrape(served)
    route = 'method="GET",route="/api/v1/jobs/{name}"'
    assert found[f'cloudml_http_requests_total{{{route},status="200"}}'] == 1
    assert found[f'cloudml_http_requests_total{{{route},status="404"}}'] == 1
    assert found['cloudml_http_requests_total{method="GET",route="none",status="404"}'] == 1
    assert found[f"cloudml_http_request_seconds_count{{{route}}}"] == 2
    assert found[f'cloudml_http_request_seconds_bucket{{{route},le="+Inf"}}'] == 2
    assert found['cloudml_jobs{phase="Queued"}'] == 1
    assert found['cloudml_jobs{phase="Failed"}'] == 0
    assert found["cloudml_http_requests_open"] == 1
    assert found["process_open_fds"] > 3
    assert found["process_resident_memory_bytes"] > 2**20
    assert found["cloudml_uploads_open"] == 0


async def test_followers_are_counted_and_bounded() -> None:
    served = Served(ApiSettings(streams_per_key=1))
    try:
        async with served.member.open("/api/v1/jobs/-/watch") as exchange:
            assert exchange.status == 200
            assert (await scrape(served))['cloudml_streams_open{kind="text/event-stream"}'] == 1
            refused = await served.member.call("GET", "/api/v1/jobs/-/watch")
            assert (refused.status, refused.json()["code"], refused.headers["retry-after"]) == (
                429,
                "too_many",
                "5",
            )
            async with served.stranger.open("/api/v1/jobs/-/watch") as other:
                assert other.status == 200
        async with served.member.open("/api/v1/jobs/-/watch") as exchange:
            assert exchange.status == 200
    finally:
        served.close()


async def test_metrics_name_no_tenant(served: Served) -> None:
    await served.submitted(job_name="secretname", labels={"secretlabel": "x"})
    await served.member.call("GET", "/api/v1/jobs/secretname")
    await served.member.call("GET", "/api/v1/secretpath")
    text = (await served.client.send("GET", "/metrics")).text
    assert "secret" not in text
    assert "default" not in text
    assert served.member.identity.user not in re.sub(r"# .*", "", text)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_metrics_are_for_this_machine_only(served: Served, header: str) -> None:
    answer = await served.client.send("GET", "/metrics", {header: "127.0.0.1"})
    assert (answer.status, answer.json()["code"]) == (403, "forbidden")
    served.platform.behind_proxy = True
    assert (await served.client.send("GET", "/metrics")).status == 403


async def test_metrics_are_for_who_has_the_token() -> None:
    served = Served(ApiSettings(metrics_token="a token"))
    try:
        assert (await served.client.send("GET", "/metrics")).status == 403
        assert (
            await served.client.send("GET", "/metrics", {"Authorization": "Bearer another"})
        ).status == 403
        shown = {"Authorization": "Bearer a token", "X-Forwarded-For": "203.0.113.7"}
        assert (await served.client.send("GET", "/metrics", shown)).status == 200
    finally:
        served.close()


async def test_each_request_is_one_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloud_ml.access")
    await served.submitted(job_name="linear")
    await served.member.call("GET", "/api/v1/jobs/linear?wait=0")
    await served.client.send("GET", "/api/v1/jobs/linear")
    await served.client.send("GET", "/healthz")
    lines = [vars(record) for record in caplog.records if record.name == "cloud_ml.access"]
    rows = [(line["route"], line["status"], line.get("org"), line.get("user")) for line in lines]
    assert rows == [
        ("/api/v1/jobs", 201, "default", "admin"), ("/api/v1/jobs/{name}", 200, "default", "mei"),
        ("/api/v1/jobs/{name}", 401, None, None),
    ]  # fmt: skip
    assert all(line["ms"] >= 0 for line in lines)


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        ("my-request.1_a", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("a b", False),
        ("-a", False),
        ('"', False),
    ],
)
async def test_a_request_keeps_the_id_that_it_came_with(
    served: Served, caplog: pytest.LogCaptureFixture, offered: str, kept: bool
) -> None:
    caplog.set_level(logging.INFO, "cloud_ml.access")
    answer = await served.client.send("GET", "/api/v1/jobs", {"X-Request-Id": offered})
    request_id = answer.headers["x-request-id"]
    assert (request_id == offered) == kept
    assert request_id == answer.json()["request_id"]

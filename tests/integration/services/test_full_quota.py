"""A service that fills its organisation's quota is rolled out in place, on a real server, and
says so before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud_ml.models.admin.quota import LimitsChange
from support.server import RealServer, serving
from support.services import ServiceApi, running
from support.serving import save_linear

pytestmark = pytest.mark.xdist_group("full-quota")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_GATEWAY_QUOTA_WAIT_S=1) as running:
        save_linear(running.folder / "linear")
        running.client().storage.upload(
            running.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        yield running


@pytest.mark.slow
def test_a_service_that_fills_its_quota_rolls_out(server: RealServer) -> None:
    ask, client = ServiceApi(server), server.client()
    ask(
        "POST",
        "",
        {
            "model_name": "full",
            "model_version": "v1",
            "model_uri": "fds://cloudml/linear",
            "replicas": 2,
            "memory_limit": "512M",
        },
    )
    before = ask.until("/full/v1", running(2))
    assert before["notices"] == [], "there is no limit"
    client.quota.set(before["org"], model=LimitsChange(memory="1G"))
    (notice,) = ask("GET", "/full/v1")["notices"]
    assert "replaces replicas in place, so that at most 1 of 2 answer meanwhile" in notice
    assert notice in server.cli("models", "describe", "full", "v1").good().out

    result = server.cli("models", "update", "full", "v1", "--cpu_limit", "0.5").good()
    assert notice in result.out + result.err
    old = {each["uid"] for each in before["replicas"]}
    after = ask.until(
        "/full/v1",
        lambda one: running(2)(one) and old.isdisjoint(each["uid"] for each in one["replicas"]),
    )
    assert after["release"] == 2
    events = client.get_model_service("full", "v1").events()
    assert any(event.reason == "QuotaExceeded" and "in place" in event.message for event in events)
    assert sum(event.reason == "ReplacedInPlace" for event in events) == 2

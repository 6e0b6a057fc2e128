"""Calls through the gateway: a real server, real replicas, clients by grpcio and http.client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from cloud_ml.auth.tokens import make_token
from support.server import RealServer, serving
from support.services import Asked, running
from support.serving import predict, predict_request, save_linear


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_GATEWAY_PORTS="18600-18699") as up:
        save_linear(up.folder / "linear")
        up.client().storage.upload(up.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx")
        yield up


@pytest.fixture
def ask(server: RealServer) -> Asked:
    return Asked(server)


def token(server: RealServer, lasts_s: float = 600.0, **other: str) -> str:
    keys = server.credentials | other
    return make_token(keys["access_key"], keys["secret_key"], datetime.now(UTC) + timedelta(seconds=lasts_s))


def over_grpc(address: str, bearer: str | None, **options: Any) -> dict[str, list[float]]:
    metadata = () if bearer is None else (("authorization", f"Bearer {bearer}"),)
    with grpc.insecure_channel(address) as channel:
        return predict(channel, predict_request(x=[1.0, 2.0]), metadata=metadata, **options)


def over_http(address: str, bearer: str | None, path: str = "/v1/models/linear:predict") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=20)
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    try:
        connection.request("POST", path, json.dumps({"instances": [1.0, 2.0]}), headers)
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()


def test_a_call_comes_through(server: RealServer, ask: Asked) -> None:
    made = ask("POST", "", {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"})
    up = ask.until("/linear/v1", running(1))
    address = up["address"]
    assert address == "127.0.0.1:18600"
    good = token(server)
    assert over_grpc(address, good) == {"y": [12.0, 14.0]}
    assert over_http(address, good) == (200, {"predictions": [12.0, 14.0]})
    del made

"""An operator who lets the gateway take more than by default has replicas that take as much."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import numpy as np
import pytest

from support.calling import token_of
from support.server import RealServer, serving
from support.services import deployed
from support.serving import save_linear

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("large-requests")]

MIB = 1 << 20
LIMIT = 96 * MIB
LARGE_ROWS = 66 * MIB // 4
"""As float32 more than the 64 MiB that servers take by default."""
MODEL = {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"}


def predict(address: str, server: RealServer, rows: int, **more: str) -> tuple[int, bytes, int]:
    """A call of the Open Inference Protocol with binary tensors: its status, the body of the
    answer and the length of its document.
    """
    data = np.ones(rows, np.float32).tobytes()
    tensor = {
        "name": "x",
        "shape": [rows],
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(data)},
    }
    document = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    fields = {
        "Authorization": f"Bearer {token_of(server.credentials)}",
        "Inference-Header-Content-Length": str(len(document)),
        **more,
    }
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("POST", "/v2/models/linear/infer", document + data, fields)
    with connection.getresponse() as answer:
        body = answer.read()
        length = int(answer.headers.get("Inference-Header-Content-Length", "0"))
    connection.close()
    return answer.status, body, length


@pytest.mark.slow
def test_replicas_take_requests_as_large_as_the_gateway_does(tmp_path: Path) -> None:
    with serving(
        tmp_path,
        CLOUDML_GATEWAY_MESSAGE_LIMIT_BYTES=LIMIT,
        CLOUDML_GATEWAY_CALLER_HEAD_BYTES=40_000,
        CLOUDML_GATEWAY_PORTS="18660-18669",
    ) as server:
        save_linear(server.folder / "linear")
        server.client().storage.upload(
            server.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        address = deployed(server, MODEL)
        few, expected, _ = predict(address, server, 1)
        status, body, length = predict(address, server, LARGE_ROWS)
        long_head, _, _ = predict(address, server, 1, X="x" * 30_000)
        longer_head, _, _ = predict(address, server, 1, X="x" * 40_000)
    assert (few, status, long_head, longer_head) == (200, 200, 200, 431), body[:300]
    answers = np.frombuffer(body[length:], np.float32)
    assert len(answers) == LARGE_ROWS
    assert (answers == np.frombuffer(expected[-4:], np.float32)[0]).all()

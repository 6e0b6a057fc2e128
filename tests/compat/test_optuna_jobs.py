"""Optuna's client, unmodified, in jobs: on studies of the job, and by nobody else's processes."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.net.client.unary_call import UnaryCall
from support.client_environments import ROOT
from support.optuna_client import PACKAGES
from support.server import RealServer, eventually, serving, trainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("optuna-client"),
]


@pytest.fixture(scope="module")
def server(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), PIP_FIND_LINKS=str(wheels)) as server:
        yield server


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this checkout as a wheel of a version of its own: packages are kept by their
    versions.
    """
    target = tmp_path_factory.mktemp("wheels")
    source = target / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    digest = hashlib.sha256()
    for path in sorted((source / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    module = source / "src" / "cloud_ml" / "__init__.py"
    module.write_text(
        re.sub(r'(__version__ = "[^"]+)"', rf'\1+{digest.hexdigest()[:12]}"', module.read_text())
    )
    words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run([sys.executable, *words], cwd=source, check=True, capture_output=True)
    return target


OBJECTIVE = """
import os, time
import optuna
from cloud_ml import job
optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = optuna.storages.GrpcStorageProxy(**job.optuna_proxy())
study = optuna.create_study(study_name="in-a-job", storage=storage, load_if_exists=True)
study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=5)
print("names", optuna.get_all_study_names(storage), len(study.trials), flush=True)
try:
    optuna.load_study(study_name="foreign", storage=storage)
except Exception as error:
    print("refused", error, flush=True)
go = os.environ["CLOUDML_STORAGE"] + "/cloudml/optuna-go"
while not os.path.exists(go):
    time.sleep(0.1)
"""
ATTACK = """
import os, socket, time
def listeners():
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    ports = {int(row[1][9:], 16) for row in rows if row[3] == "0A" and row[1][:8] == "0100007F"}
    return ports - {8471}
while not listeners():
    time.sleep(0.1)
for port in listeners():
    for _ in range(20):
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(bytes.fromhex(CALL))
                while b"grpc-status" not in answer:
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    answer += piece
        except OSError as error:
            pass
        assert answer == b"", answer
    print("closed unread", flush=True)
"""


def call_for_all_studies() -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), ("content-type", "application/grpc")]
    fields.insert(2, (":path", "/optuna.StorageService/GetAllStudies"))
    return UnaryCall(fields, bytes(5), most_bytes=1000).begin()


def logs(server: RealServer, name: str) -> str:
    return server.cli("jobs", "logs", name).out


def optimizing_job(server: RealServer, wheels: Path, folder: Path) -> None:
    """The job ``optuna-own`` that has optimized, and now waits."""
    server.client().studies.local("foreign", {"x": [1, 2]}, objective="loss:min")
    (wheel,) = wheels.glob("*.whl")
    ours = f"cloud-ml[optuna]=={wheel.name.split('-')[1]}"
    made = trainer(folder, OBJECTIVE, requirements_txt="\n".join((ours, *PACKAGES)))
    server.cli("jobs", "submit", str(made), "-n", "optuna-own", timeout_s=300).good()

    def has_optimized() -> bool:
        log_so_far = logs(server, "optuna-own")
        assert "Traceback" not in log_so_far, log_so_far
        return "refused" in log_so_far

    eventually(has_optimized, "it has optimized", limit_s=400)
    log = logs(server, "optuna-own")
    assert "names ['in-a-job'] 5" in log
    assert "This job may not use the study foreign" in log


def end(server: RealServer, folder: Path) -> None:
    go = folder / "go"
    go.touch()
    server.client().storage.upload(go, "fds://cloudml/optuna-go")
    server.cli("jobs", "wait", "optuna-own", timeout_s=120).good()
    whole = server.client().studies.describe("in-a-job")
    assert len(whole.trials) == whole.ended == 5


def test_a_job_optimizes_and_no_other_job_reaches_its_proxy(
    server: RealServer, wheels: Path, tmp_path: Path
) -> None:
    optimizing_job(server, wheels, tmp_path / "own")
    source = f"CALL = {call_for_all_studies().hex()!r}\n{ATTACK}"
    attacker = trainer(tmp_path / "attacker", source)
    ran = server.cli(
        "jobs", "submit", str(attacker), "-n", "optuna-attacker", "--watch", timeout_s=300
    )
    assert ran.code == 0, ran.out + ran.err
    assert "closed unread" in logs(server, "optuna-attacker")
    end(server, tmp_path)


def test_a_job_without_a_network_optimizes_too(wheels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    settings = {"PIP_FIND_LINKS": str(wheels), "CLOUDML_ENGINE_NETWORK": "none"}
    with serving(folder, **settings) as server:
        optimizing_job(server, wheels, tmp_path / "own")
        end(server, tmp_path)

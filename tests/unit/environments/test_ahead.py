"""Runtimes before a job asks for them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cloud_ml.environments import ahead
from cloud_ml.environments.ahead import PreparationRequest
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.interpreter import own
from cloud_ml.environments.leases import Leases
from unit.environments.fake_uv import FakeUv


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return FakeUv(tmp_path / "uv")


@pytest.fixture
def order(tmp_path: Path, uv: FakeUv) -> PreparationRequest:
    return PreparationRequest(
        home=str(tmp_path / "home"),
        uv=str(uv.path),
        runtimes_dir=str(tmp_path / "runtimes"),
        python=sys.executable,
        pythons={},
        framework="scikit-learn",
    )


def words(_: bytes) -> None:
    """Nobody listens."""


def test_what_is_prepared_is_ready_and_prepared_once(order: PreparationRequest, uv: FakeUv) -> None:
    runtime = order.catalog.find("sklearn")
    assert ahead.state(order, runtime) == ahead.State(runtime, own().version)
    output = b""

    def listen(more: bytes) -> None:
        nonlocal output
        output += more

    state = ahead.prepare(order, listen)
    assert state.ready
    assert state.size > 0
    assert "scikit-learn==1.0" in state.packages
    assert b"Installing 4 packages" in output
    calls = uv.calls
    assert ahead.prepare(order, words) == state
    assert uv.calls == calls


def test_what_is_removed_is_made_again(order: PreparationRequest) -> None:
    ahead.prepare(order, words)
    assert not ahead.remove(order).ready
    assert ahead.prepare(order, words).ready


def test_what_a_job_holds_is_not_removed(order: PreparationRequest, tmp_path: Path) -> None:
    ahead.prepare(order, words)
    held = Leases()
    (layer,) = (
        path for path in (tmp_path / "home" / "layers").iterdir() if not path.name.startswith(".")
    )
    assert held.take(layer)
    assert ahead.remove(order).ready
    held.close()
    assert not ahead.remove(order).ready


def test_a_runtime_of_an_interpreter_that_is_not_there_yet(order: PreparationRequest) -> None:
    missing = replace(order, pythons={"3.99": ""}, framework="python", version="3.99")
    runtime = missing.catalog.find("python", "3.99")
    assert ahead.state(missing, runtime) == ahead.State(runtime)


def test_what_is_forbidden_is_refused_before_it_is_installed(
    order: PreparationRequest, tmp_path: Path
) -> None:
    (tmp_path / "runtimes").mkdir()
    (tmp_path / "runtimes" / "heavy.toml").write_text(
        'name = "heavy"\nversion = "1"\nrequires = ["nvidia-cublas"]\nforbids = ["nvidia-*"]\n'
    )
    with pytest.raises(
        EnvironmentFailed, match=r"bring nvidia-cublas, which the runtime heavy 1 does not take"
    ):
        ahead.prepare(replace(order, framework="heavy"), words)
    assert not (tmp_path / "home" / "layers").exists()


def test_in_a_process_of_its_own(order: PreparationRequest, uv: FakeUv) -> None:
    *lines, last = _events(order)
    assert last == {"ready": True}
    assert any("Installing" in line["log"] for line in lines)
    uv.refuse("xgboost-cpu")
    failed = _events(replace(order, framework="xgboost"))[-1]
    assert failed["failed"] == "EnvironmentFailed"
    assert "cannot be resolved" in failed["message"]


def _events(order: PreparationRequest) -> list[dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "cloud_ml.environments.ahead"],
        input=json.dumps(asdict(order)), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]

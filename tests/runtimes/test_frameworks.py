"""Every framework that is offered trains a small model, through a real server. Downloads gigabytes
on a fresh machine.

``make test-runtimes`` runs them one at a time; ``pytest tests/runtimes -k pytorch`` runs one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.environments.catalog import Catalog
from support.environments import EXAMPLES
from support.server import RealServer, serving

LIMIT_S = 1500
FRAMEWORKS = EXAMPLES / "frameworks"
RUNTIMES = {
    "jax": ("jax==0.10", "jax "),
    "keras": ("keras==3", "on tensorflow"),
    "keras-jax": ("keras==3-jax", "on jax"),
    "keras-torch": ("keras==3-torch", "on torch"),
    "lightgbm": ("lightgbm==4.7", ""),
    "paddlepaddle": ("paddlepaddle==3.3", "paddle 3.3"),
    "pytorch": ("pytorch==2.13", "with 1 threads"),
    "scikit-learn": ("scikit-learn==1.9", ""),
    "xgboost": ("xgboost==3.2", ""),
}
_UNREACHABLE = (
    "Failed to fetch",
    "dns error",
    "error sending request",
    "Could not connect",
    "Connection refused",
)

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(LIMIT_S)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"), CLOUDML_ENVIRONMENTS_LAYERS_LIMIT_BYTES=0
    ) as running:
        yield running


def test_every_framework_has_its_example() -> None:
    offered = {f"{one.name}=={one.version}" for one in Catalog.load().runtimes}
    others = {
        name for name in offered if name.startswith(("python==", "tensorflow=="))
    }  # shown by examples beside
    assert {runtime for runtime, _ in RUNTIMES.values()} == offered - others
    assert {path.name for path in FRAMEWORKS.iterdir()} == set(RUNTIMES)


@pytest.mark.parametrize("name", RUNTIMES)
def test_it_is_prepared_found_in_code_and_trains(server: RealServer, name: str) -> None:
    runtime, said = RUNTIMES[name]
    began = time.monotonic()
    prepared = server.cli("framework", "prepare", runtime, timeout_s=LIMIT_S)
    if prepared.code and any(word in prepared.err for word in _UNREACHABLE):
        pytest.skip(
            f"the packages of {runtime} cannot be fetched here: "
            f"{prepared.err.splitlines()[-1][:200]}"
        )
    print(f"{prepared.good().out.strip()} after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    ran = server.cli(
        "jobs",
        "submit",
        "-W",
        name,
        "-c",
        "1",
        "trainer.task",
        str(FRAMEWORKS / name),
        timeout_s=600,
    )
    print(f"trained after {time.monotonic() - began:.1f} s")
    accuracy = re.search(r"^accuracy: ([\d.]+)$", ran.good().out, re.MULTILINE)
    assert accuracy is not None, ran.out
    assert float(accuracy[1]) > 0.85
    assert said in ran.out
    described = json.loads(server.cli("framework", "describe", runtime, "-o", "json").good().out)
    assert (described["ready"], described["size_bytes"] > 10**7) == (True, True)
    heavy = [
        package
        for package in described["packages"]
        if Path(package).name.startswith(("nvidia-", "triton"))
    ]
    assert heavy == []

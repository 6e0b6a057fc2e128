"""Which models of each framework keep their rows apart, as the frameworks themselves make these models."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from runtimes.test_model_formats import PACKAGES
from support.model_environments import environment

HERE = Path(__file__).parent / "models"

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("framework", ["pytorch", "sklearn", "tensorflow"])
def test_only_rows_that_are_apart_are_proven(framework: str) -> None:
    script = HERE / f"check_independence_{framework}.py"
    made = subprocess.run(
        [environment(*PACKAGES[framework]), script], capture_output=True, text=True, timeout=600, check=False
    )
    assert made.returncode == 0, made.stderr
    reasons: dict[str, str] = json.loads(made.stdout.splitlines()[-1])
    assert {name: reason for name, reason in reasons.items() if name.startswith("apart") and reason} == {}
    assert [name for name, reason in reasons.items() if name.startswith("mixes") and not reason] == []

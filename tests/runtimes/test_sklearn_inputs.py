"""Estimators that were fitted on tables or texts are called with columns by name, or with texts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.model_environments import environment

SCRIPT = Path(__file__).parent / "models" / "check_sklearn_inputs.py"
CITY, AGE, N = "city: string [?]", "age: float64 [?]", "n: float64 [?]"
INPUTS = {
    "columns": [CITY, AGE, N],
    "imputed": [CITY, "n: int64 [?]"],
    "passed": [CITY, AGE, N],
    "of a kind": [CITY, AGE, N],
    "with text": [AGE, "text: string [?]"],
    "truths": [CITY, "flag: bool [?]"],
    "one column": [CITY],
    "searched": [CITY, AGE, N],
    "calibrated": [CITY, AGE, N],
    "numbers by name": ["x: float64 [?, 2]"],
    "places": ["x1: string [?]", "x3: float64 [?]"],
    "encoded": ["x: string [?, 2]"],
    "texts": ["x: string [?]"],
    "counted": ["x: string [?]"],
    "joined": ["x: string [?]"],
    "numbers": ["x: float64 [?, 2]"],
    "array": ["x: float64 [?, 2]"],
}

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]


def test_estimators_are_called_with_what_they_were_fitted_on() -> None:
    made = subprocess.run(
        [environment("scikit-learn>=1.7", "pandas"), SCRIPT],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    estimators = json.loads(made.stdout.splitlines()[-1])
    assert {name: each["inputs"] for name, each in estimators.items()} == INPUTS
    assert [name for name, each in estimators.items() if not each["same"]] == []
    assert {name for name, each in estimators.items() if each["columns"] == ["age", "n"]} == {
        "numbers by name",
        "numbers",
    }

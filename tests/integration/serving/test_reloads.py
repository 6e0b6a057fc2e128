"""Versions of Python models that were unloaded give their memory back."""

from __future__ import annotations

import json
import time
from pathlib import Path

from integration.serving.test_metrics import metrics
from integration.serving.test_rest import ask
from support.serving import Running, model_server

RELOADS = 20
SIZE = 33 << 20  # pieces of more than 32 MiB are given back at once, see serving/memory.py
MODEL = """
import numpy as np

TABLE = np.ones({size}, np.uint8)


class Model:
    def load(self, folder):
        self.table = TABLE

    def predict(self, inputs):
        return {{"y": inputs["x"] + self.table[0]}}
"""


def save(base: Path, number: int) -> None:
    """A version, moved to its place when it is whole."""
    folder = base / f".{number}"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(size=SIZE))
    tensors = [{"name": name, "dtype": "float32", "shape": [-1]} for name in "xy"]
    (folder / "signature.json").write_text(
        json.dumps({"inputs": tensors[:1], "outputs": tensors[1:]})
    )
    folder.rename(base / str(number))


def memory(running: Running) -> float:
    line = next(
        each for each in metrics(running) if each.startswith("process_resident_memory_bytes ")
    )
    return float(line.split()[1])


def test_versions_of_a_python_model_that_left_leave_nothing_behind(tmp_path: Path) -> None:
    flags = [
        "--model_name",
        "m",
        "--model_base_path",
        str(tmp_path),
        "--allow_models_that_run_code",
    ]
    flags += [
        "--version_settle_seconds",
        "0",
        "--file_system_poll_wait_seconds",
        "0",
        "--allow_model_control",
    ]
    save(tmp_path, 1)
    with model_server(*flags) as running:

        def next_version(number: int) -> None:
            save(tmp_path, number)
            status, document = ask(running, "POST", "/v2/repository/models/m/load", {})
            assert status == 200, document
            path = f"/v1/models/m/versions/{number}:predict"
            assert ask(running, "POST", path, {"instances": [1.0]}) == (200, {"predictions": [2.0]})

        next_version(2)
        before = memory(running)
        for number in range(3, 3 + RELOADS):
            next_version(number)
        deadline = (
            time.monotonic() + 30
        )  # the last ones are closed in threads, after their successors answer
        while (grown := memory(running) - before) >= 3 * SIZE and time.monotonic() < deadline:
            time.sleep(0.05)
    assert grown < 3 * SIZE, (
        f"{grown / SIZE:.1f} times the size of a version after {RELOADS} of them"
    )

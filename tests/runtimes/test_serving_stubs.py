"""Clients that nobody here wrote: the stubs of ``tensorflow-serving-api``, unmodified, change
what a server serves.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.model_environments import environment
from support.serving import model_server, save_linear

ASK = Path(__file__).parent / "models" / "reload_config.py"
PACKAGES = ("tensorflow-cpu>=2.20", "tf2onnx>=1.16", "onnxruntime>=1.20")
QUICK = ("--file_system_poll_wait_seconds", "0.1")

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(900)]
Ask = Callable[[str, Any], Any]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Python with TensorFlow, and where the stubs are beside it: what they ask for is another
    TensorFlow.
    """
    python, folder = environment(*PACKAGES), tmp_path_factory.mktemp("stubs")
    pip = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        folder,
        "tensorflow-serving-api>=2.19",
    ]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(
            "tensorflow-serving-api cannot be installed here: "
            f"{(done.stderr.splitlines() or ['?'])[-1][:200]}"
        )
    return python, folder


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    for name, intercept in (("a", 10.0), ("b", 5.0)):
        save_linear(tmp_path / name / "1", intercept=intercept)
    return {name: str(tmp_path / name) for name in "ab"}


@pytest.fixture
def ask(stubs: tuple[Path, Path], models: dict[str, str]) -> Iterator[Ask]:
    python, folder = stubs
    flags = ("--model_name", "a", "--model_base_path", models["a"], "--allow_model_control", *QUICK)
    with (
        model_server(*flags) as running,
        subprocess.Popen(
            [python, ASK, f"127.0.0.1:{running.port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        ) as client,
    ):  # fmt: skip

        def call(what: str, given: Any) -> Any:
            assert client.stdin is not None
            assert client.stdout is not None
            print(json.dumps([what, given]), file=client.stdin, flush=True)
            return json.loads(client.stdout.readline())

        yield call
        client.communicate()
        assert client.returncode == 0


def test_models_are_added_and_removed_and_a_broken_configuration_changes_nothing(
    ask: Ask, models: dict[str, str], tmp_path: Path
) -> None:
    assert ask("predict", "a") == [12.0, 14.0]
    assert ask("reload", [["a", models["a"]], ["b", models["b"]]]) == [0, ""]
    assert (ask("predict", "a"), ask("predict", "b")) == ([12.0, 14.0], [7.0, 9.0])

    both, junk = [["a", models["a"]], ["b", models["b"]]], tmp_path / "junk"
    (junk / "1").mkdir(parents=True)
    (junk / "1" / "model.onnx").write_bytes(b"junk")
    for wrong, code, why in (
        ([["b", models["b"]], ["b", models["a"]]], "INVALID_ARGUMENT", "b"),
        ([["b", ""]], "INVALID_ARGUMENT", "base_path"),
        ([["", models["b"]]], "INVALID_ARGUMENT", "name"),
        ([*both, ["c", str(tmp_path / "none")]], "INTERNAL", "No such file"),
        ([*both, ["c", str(junk)]], "INTERNAL", "INVALID_PROTOBUF"),
    ):
        refused = ask("reload", wrong)
        assert (refused["code"], why in refused["details"]) == (code, True), refused
        assert (ask("predict", "a"), ask("predict", "b")) == ([12.0, 14.0], [7.0, 9.0]), wrong

    assert ask("reload", [["b", models["b"]]]) == [0, ""]
    assert ask("predict", "b") == [7.0, 9.0]
    assert ask("predict", "a")["code"] == "NOT_FOUND"
    assert ask("status", "b") == [[1, "AVAILABLE"]]

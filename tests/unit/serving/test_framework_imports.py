"""Frameworks are imported one at a time, whichever threads load models."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.runtimes.python import PythonRuntime
from cloud_ml.serving.runtimes.sklearn import PickledRuntime

MEETING = """
import threading
_both = threading.Barrier(2)
AT_ONCE = []

def come(name):
    try:
        _both.wait(0.3)
        AT_ONCE.append(name)
    except threading.BrokenBarrierError:
        pass
"""


HALF = """
import meeting
meeting.come(__name__)
import {other}
{other}.__file__

class Estimator:
    n_features_in_ = 1
    def predict(self, rows): ...

class Model:
    def load(self, folder): ...
"""
NAMES = ("half_one", "half_two")
SIGNATURE = (
    '{"inputs": [{"name": "x", "dtype": "float32", "shape": [-1]}],'
    ' "outputs": [{"name": "y", "dtype": "float32", "shape": [-1]}]}'
)


@pytest.fixture
def circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two modules that import each other and notice whether two threads do so at once. The
    joblib reads pickles.
    """
    (tmp_path / "meeting.py").write_text(MEETING)
    (tmp_path / "joblib.py").write_text(
        "import pickle\ndef load(file): return pickle.loads(file.read_bytes())\n"
    )
    for name, other in (NAMES, NAMES[::-1]):
        (tmp_path / f"{name}.py").write_text(HALF.format(other=other))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    assert sys.modules["meeting"].AT_ONCE == []
    forget()


def forget() -> None:
    for name in (*NAMES, "meeting", "joblib"):
        sys.modules.pop(name, None)


def in_two_threads(call: Callable[[str], Any]) -> list[Any]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(call, NAMES))


@pytest.mark.usefixtures("circle")
def test_two_frameworks_that_import_each_other_are_imported_by_two_threads() -> None:
    assert [each.__name__ for each in in_two_threads(import_framework)] == list(NAMES)


def test_two_pickles_whose_modules_import_each_other_are_loaded_by_two_threads(
    circle: Path,
) -> None:
    for name in NAMES:
        (circle / "model" / name).mkdir(parents=True)
        estimator = pickle.dumps(import_framework(name).Estimator())
        (circle / "model" / name / "model.joblib").write_bytes(estimator)
    forget()
    made = in_two_threads(
        lambda name: PickledRuntime().load(circle / "model" / name, LoadOptions())
    )
    assert [type(each._estimator).__module__ for each in made] == list(NAMES)


def test_two_python_models_whose_modules_import_each_other_are_loaded_by_two_threads(
    circle: Path,
) -> None:
    for name in NAMES:
        folder = circle / "model" / name
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(f"from {name} import Model\n")
        (folder / "signature.json").write_text(SIGNATURE)
    made = in_two_threads(lambda name: PythonRuntime().load(folder.parent / name, LoadOptions()))
    assert [type(each._instance).__module__ for each in made] == list(NAMES)
    for each in made:
        each.close()

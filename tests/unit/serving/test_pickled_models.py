"""What a pickle holds is served, or refused with the way out."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.python import PythonRuntime
from cloud_ml.serving.runtimes.sklearn import PickledRuntime


class XGBoostBooster:
    """Takes arrays by ``inplace_predict`` only, as XGBoost's does."""

    feature_names = ("a", "b")
    threads = 0

    def set_param(self, values: dict[str, int]) -> None:
        self.threads = values["nthread"]

    def num_features(self) -> int:
        return 2

    def inplace_predict(self, rows: Any) -> Any:
        return np.asarray(rows, np.float32).sum(1)

    def predict(self, rows: object) -> Any:
        raise TypeError("Expecting data to be a DMatrix object")


class LightGBMBooster:
    def num_feature(self) -> int:
        return 2

    def feature_name(self) -> list[str]:
        return ["Column_0", "Column_1"]

    def predict(self, rows: Any, num_threads: int) -> Any:
        return np.asarray(rows, np.float64).sum(1) * num_threads


@pytest.fixture(autouse=True)
def joblib(monkeypatch: pytest.MonkeyPatch) -> None:
    """joblib reads pickles, too."""
    module = ModuleType("joblib")
    module.load = lambda file: pickle.loads(Path(file).read_bytes())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "joblib", module)


def pickled_as(
    kind: type, module: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle of an object of the class, as the module that it names would have made it."""
    made, defined = ModuleType(module), type(name, (kind,), {"__module__": module})
    setattr(made, name, defined)
    parts = module.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[0]))
    monkeypatch.setitem(sys.modules, module, made)
    (folder / "model.pkl").write_bytes(pickle.dumps(defined()))


@pytest.mark.parametrize(
    ("kind", "module", "takes", "columns"),
    [
        (XGBoostBooster, "xgboost.core", "x: float32 [?, 2]", ("a", "b")),
        (LightGBMBooster, "lightgbm.basic", "x: float64 [?, 2]", ()),
    ],
)
def test_a_booster_is_served_like_its_own_format(
    kind: type,
    module: str,
    takes: str,
    columns: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled_as(kind, module, "Booster", tmp_path, monkeypatch)
    model = PickledRuntime().load(tmp_path, LoadOptions())
    (signature,) = model.signatures.values()
    (given,) = signature.inputs
    assert (str(given), given.columns) == (takes, columns)
    (back,) = model.predict(signature, [np.array([[1, 2], [3, 4]], given.dtype.numpy)])
    assert back.tolist() == [3.0, 7.0]


@pytest.mark.parametrize(
    ("module", "origin"),
    [("__main__", "the script that saved it"), ("training.models", r"module training\.models")],
)
def test_a_class_that_is_missing_is_named_with_the_way_out(
    module: str, origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as saved:
        pickled_as(object, module, "Churn", tmp_path, saved)
    if module != "__main__":
        monkeypatch.setitem(sys.modules, "training", ModuleType("training"))
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    with pytest.raises(
        ModelFailed,
        match=rf"^model\.pkl needs the class Churn of {origin}, and a pickle does not hold the code "
        r"of its classes: deploy a folder with this file under another name, such as weights\.pkl, "
        r"and a model\.py that has the code, as docs/reference/serving-models\.md shows \(Attr",
    ):
        PickledRuntime().load(tmp_path, LoadOptions())


def test_a_module_that_is_missing_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as saved:
        pickled_as(object, "features.text", "Churn", tmp_path, saved)
    with pytest.raises(
        ModelFailed,
        match=r"^model\.pkl needs the module features, which this replica does not have: if it is "
        r"your own code, deploy a folder",
    ):
        PickledRuntime().load(tmp_path, LoadOptions())


def test_other_refusals_keep_their_words(tmp_path: Path) -> None:
    (tmp_path / "model.joblib").write_bytes(b"no pickle")
    with pytest.raises(ModelFailed, match=r"^model\.joblib cannot be loaded: UnpicklingError"):
        PickledRuntime().load(tmp_path, LoadOptions())


def test_the_model_py_of_the_page_loads_a_class_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/serving-models.md").read_text()
    code = page.split("### A pickle with classes of your own")[1].split("```python\n")[1]
    with monkeypatch.context() as saved:
        pickled_as(object, "__main__", "Churn", tmp_path, saved)
    (tmp_path / "model.pkl").rename(tmp_path / "weights.pkl")
    (tmp_path / "model.py").write_text(code.split("```")[0])
    (tmp_path / "signature.json").write_text(
        '{"inputs": [{"name": "x", "dtype": "float32", "shape": [-1, 2]}]}'
    )
    model = PythonRuntime().load(tmp_path, LoadOptions())
    (signature,) = model.signatures.values()
    (back,) = model.predict(signature, [np.array([[1, 2], [3, 4]], np.float32)])
    assert back.tolist() == [3.0, 7.0]

"""The categories that LightGBM was trained with, in requests and in a model's header."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving.runtimes import boosting
from cloud_ml.serving.runtimes.lightgbm_categories import categories_of
from cloud_ml.serving.runtimes.sklearn_inputs import features_of
from cloud_ml.serving.signatures import Signature

CITIES = ["Berlin", "Paris", "Rome"]


@dataclass
class Booster:
    """What LightGBM's says of itself. It predicts the sum of the numbers that it gets."""

    feature_infos: str
    pandas_categorical: list[list[object]] | None
    names: list[str] = field(default_factory=lambda: ["city", "age", "plan"])

    def model_to_string(self, num_iteration: int) -> str:
        return f"tree\nversion=v4\nfeature_infos={self.feature_infos}\ntree_sizes=340\n"

    def num_feature(self) -> int:
        return len(self.names)

    def feature_name(self) -> list[str]:
        return self.names

    def predict(self, rows: Any, num_threads: int = 1) -> Any:
        assert rows.dtype == np.float64
        return rows.sum(1)


def served(booster: Booster, folder: Path) -> tuple[boosting.Booster, Signature]:
    model = boosting.served_lightgbm(booster, folder)
    (signature,) = model.signatures.values()
    return model, signature


@pytest.mark.parametrize(
    ("infos", "categories", "found"),
    [
        ("-1:2:1:0 [18:79] -1:1:0", [CITIES, [10, 20]], {0: CITIES, 2: [10, 20]}),
        ("-1:2:1:0 [18:79] none", [CITIES], {0: CITIES}),
        ("-1:2:1:0 [18:79] none", [CITIES, [10]], {0: CITIES, 2: [10]}),
        ("[0:1] [18:79] none", None, {}),
        ("-1:2:1:0 [18:79] -1:1:0", None, {}),
        # Here whole numbers of one column were called categories, beside one of pandas.
        ("-1:2:1:0 [18:79] -1:1:0", [CITIES], {}),
        ("", [CITIES], {}),
    ],
)
def test_the_columns_with_categories_are_told_by_the_header(
    infos: str, categories: list[list[object]] | None, found: dict[int, list[object]]
) -> None:
    assert {
        place: list(codes) for place, codes in categories_of(Booster(infos, categories)).items()
    } == found


def test_numbers_of_numpy_are_categories_like_those_of_a_file() -> None:
    from_memory = Booster("-1:1:0", [list(np.array([10, 20]))], ["plan"])
    assert categories_of(from_memory) == {0: {10: 0.0, 20: 1.0}}


def test_each_column_of_several_types_is_an_input(tmp_path: Path) -> None:
    model, signature = served(Booster("-1:2:1:0 [18:79] -1:1:0", [CITIES, [10, 20]]), tmp_path)
    assert [str(each) for each in signature.inputs] == [
        "city: string [?]",
        "age: float64 [?]",
        "plan: int64 [?]",
    ]
    cities = np.array([b"Rome", b"Berlin", b"Paris"], object)
    (made,) = model.predict(
        signature, [cities, np.array([30.0, 40.0, 50.0]), np.array([20, 10, 20])]
    )
    assert made.tolist() == [2 + 30 + 1, 0 + 40 + 0, 1 + 50 + 1]


def test_columns_of_one_type_are_one_input(tmp_path: Path) -> None:
    model, signature = served(
        Booster("-1:2:1:0 -1:1:0", [CITIES, ["a", "b"]], ["city", "plan"]), tmp_path
    )
    assert [(str(each), each.columns) for each in signature.inputs] == [
        ("x: string [?, 2]", ("city", "plan"))
    ]
    (made,) = model.predict(signature, [np.array([[b"Rome", b"b"], [b"Paris", b"a"]], object)])
    assert made.tolist() == [3.0, 1.0]


def test_a_category_that_was_not_in_the_training_is_missing(tmp_path: Path) -> None:
    model, signature = served(Booster("-1:2:1:0", [CITIES], ["city"]), tmp_path)
    (made,) = model.predict(signature, [np.array([[b"Oslo"], [b"Rome"]], object)])
    np.testing.assert_array_equal(made, [np.nan, 2.0])


def test_a_signature_of_ones_own_that_takes_numbers_takes_codes(tmp_path: Path) -> None:
    (tmp_path / "signature.json").write_text(
        '{"inputs": [{"name": "x", "dtype": "float64", "shape": [-1, 3]}], '
        '"outputs": [{"name": "y", "dtype": "float64", "shape": [-1]}]}'
    )
    model, signature = served(Booster("-1:2:1:0 [18:79] none", [CITIES]), tmp_path)
    (made,) = model.predict(signature, [np.array([[2.0, 30.0, 1.0]])])
    assert made.tolist() == [33.0]


def test_an_estimator_has_the_categories_of_its_booster() -> None:
    class Estimator:
        booster_ = Booster("-1:2:1:0 [18:79] -1:1:0", [CITIES, [10, 20]])
        feature_name_ = booster_.names
        n_features_in_ = 3

    assert [str(each) for each in features_of(Estimator()).inputs()] == [
        "city: string [?]",
        "age: float64 [?]",
        "plan: int64 [?]",
    ]


def test_an_estimator_that_is_not_fitted_has_none() -> None:
    class Estimator:
        n_features_in_ = 2

        @property
        def booster_(self) -> object:
            raise AttributeError("No booster found. Need to call fit beforehand.")

    assert features_of(Estimator()).codes == {}

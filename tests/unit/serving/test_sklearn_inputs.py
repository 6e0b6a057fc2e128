"""Estimators that take texts or columns of several types, through the doors of the model server."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.runtimes.load_advice import check_estimator
from cloud_ml.serving.runtimes.sklearn import SklearnModel, describe_estimator
from cloud_ml.serving.runtimes.sklearn_inputs import features_of
from fuzz.model_world import Transport, World


class Encoder:
    """Knows two cities and two numbers of rooms."""

    def __init__(self) -> None:
        self.categories_ = [np.array(["Köln", "北京"], object), np.array([1, 2])]


class Chain:
    """An encoder and what follows it, as a pipeline has them. Its features were columns of an
    array.
    """

    n_features_in_ = 2

    def __init__(self) -> None:
        self.steps = [("encoder", Encoder()), ("last", "passthrough")]

    def predict(self, rows: Any) -> Any:
        cities, rooms = rows.T
        return np.array(
            [len(city) * 10.0 + count for city, count in zip(cities, rooms, strict=True)]
        )


class Vectorizer:
    def build_analyzer(self) -> None: ...


class Words:
    """Counts the words of texts."""

    steps: ClassVar = [("words", Vectorizer())]

    def predict(self, texts: Any) -> Any:
        return np.array([float(len(text.split())) for text in texts])


def post(estimator: Any, path: str, body: Any) -> Any:
    world = World()
    context = world.table.models["m"].versions[1]._context
    world.table.put(
        LoadedVersion("m", 1, SklearnModel(estimator, describe_estimator(estimator)), context)
    )
    connection, transport = world.http1()
    data = json.dumps(body).encode()
    head = b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.data_received(head % (path.encode(), len(data)) + data)
    world.loop.settle()
    assert isinstance(transport, Transport)
    return json.loads(transport.written.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "body", [{"instances": ["good day", "bad"]}, {"inputs": {"x": ["good day", "bad"]}}]
)
def test_a_model_of_texts_takes_texts(body: Any) -> None:
    assert list(post(Words(), "/v1/models/m:predict", body).values()) == [[2.0, 1.0]]


def test_text_that_is_no_utf8_is_refused() -> None:
    answer = post(Words(), "/v1/models/m:predict", {"instances": [{"b64": "/w=="}]})
    assert answer["error"].startswith("input 'x' has a string that is no UTF-8")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/models/m:predict", {"instances": [{"x0": "Köln", "x1": 2}, {"x0": "北京", "x1": 1}]}),
        ("/v1/models/m:predict", {"inputs": {"x0": ["Köln", "北京"], "x1": [2, 1]}}),
        (
            "/invocations",
            {"dataframe_split": {"columns": ["x1", "x0"], "data": [[2, "Köln"], [1, "北京"]]}},
        ),
    ],
)
def test_columns_of_several_types_are_inputs_of_their_own(path: str, body: Any) -> None:
    assert next(iter(post(Chain(), path, body).values())) == [42.0, 21.0]


class Choice:
    """A ``ColumnTransformer`` that uses one of three columns."""

    n_features_in_ = 3
    feature_names_in_ = np.array(["id", "city", "age"], object)
    transformers_: ClassVar = [("scaled", "passthrough", ["age"]), ("remainder", "drop", [0, 1])]
    _transformer_to_input_indices: ClassVar = {"scaled": [2], "remainder": [0, 1]}


def test_columns_that_are_not_used_are_not_asked_for() -> None:
    features = features_of(Choice())
    assert (features.types, features.selected) == ({2: dtypes.DOUBLE}, True)
    assert [str(spec) for spec in features.inputs()] == ["age: float64 [?]"]


def test_what_does_not_predict_is_no_model() -> None:
    with pytest.raises(
        ModelFailed,
        match=r"pipe\.pkl holds no estimator, but a value of type dict with model, labels: save",
    ):
        check_estimator({"model": Words(), "labels": [1]}, "pipe.pkl")
    with pytest.raises(ModelFailed, match="a value of type ndarray: save the estimator alone"):
        check_estimator(np.zeros(2), "pipe.pkl")
    check_estimator(Words(), "pipe.pkl")

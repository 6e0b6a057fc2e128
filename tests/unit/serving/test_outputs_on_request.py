"""Probabilities of classifiers: listed always, computed and answered where a request names them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving import loading
from cloud_ml.serving.grpc.infer import Infer
from cloud_ml.serving.grpc.prediction import Prediction
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip import model_documents
from cloud_ml.serving.output_alias import with_output_alias
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.sklearn import SklearnModel, describe_estimator
from cloud_ml.serving.signatures import CLASSIFY, REGRESS
from fuzz.model_world import INFER, PREDICT, Transport, World

ROWS = np.array([[0.0, 1.0], [2.0, 0.5]])


class Classifier:
    """Tells which of two features is larger, and counts what it is asked."""

    n_features_in_ = 2
    classes_ = np.array(["first", "second"])

    def __init__(self) -> None:
        self.calls: list[str] = []

    def predict(self, rows: Any) -> Any:
        self.calls.append("predict")
        return self.classes_[np.argmax(rows, axis=1)]

    def predict_proba(self, rows: Any) -> Any:
        self.calls.append("predict_proba")
        return rows / rows.sum(axis=1, keepdims=True)


@pytest.fixture
def classifier() -> Classifier:
    return Classifier()


@pytest.fixture
def world(classifier: Classifier) -> World:
    made = World()
    context = made.table.models["m"].versions[1]._context
    model = loaded(SklearnModel(classifier, describe_estimator(classifier)))
    made.table.put(LoadedVersion("m", 1, model, context))
    made.methods = {PREDICT: Prediction(made.table).predict, INFER: Infer(made.table).infer}
    return made


class Format:
    """A format whose models are given, for what is done with a model of any format."""

    name, runs_code = "any", False

    def __init__(self, model: Any) -> None:
        self._model = model

    def recognises(self, folder: Path) -> bool:
        return True

    def load(self, folder: Path, options: LoadOptions) -> Any:
        return self._model


def loaded(model: Any) -> Any:
    return loading.load(Path("unused"), LoadOptions(), [Format(model)])


def predict(world: World, *names: str) -> Any:
    request = message("tensorflow.serving.PredictRequest")(output_filter=names)
    request.model_spec.name = "m"
    tensor = request.inputs["x"]
    tensor.dtype, tensor.tensor_content = 2, ROWS.tobytes()
    for size in ROWS.shape:
        tensor.tensor_shape.dim.add(size=size)
    status, answer = world.call(PREDICT, request.SerializeToString())
    return (
        message("tensorflow.serving.PredictResponse").FromString(answer)
        if not status
        else answer.decode("latin-1")
    )


def infer(world: World, *names: str) -> Any:
    request = message("inference.ModelInferRequest")(
        model_name="m", raw_input_contents=[ROWS.tobytes()]
    )
    request.inputs.add(name="x", datatype="FP64", shape=ROWS.shape)
    for name in names:
        request.outputs.add(name=name)
    status, answer = world.call(INFER, request.SerializeToString())
    assert not status, answer
    return message("inference.ModelInferResponse").FromString(answer)


def rest(world: World, path: str, body: Any) -> Any:
    connection, transport = world.http1()
    data = json.dumps(body).encode()
    connection.data_received(
        b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"
        % (path.encode(), len(data), data)
    )
    world.loop.settle()
    assert isinstance(transport, Transport)
    return json.loads(transport.written.partition(b"\r\n\r\n")[2])


def test_what_is_served_without_a_filter_is_what_it_was(
    world: World, classifier: Classifier
) -> None:
    for _ in range(2):  # the second is recognised
        assert list(predict(world).outputs) == ["label"]
        assert [each.name for each in infer(world).outputs] == ["label"]
    assert rest(world, "/v1/models/m:predict", {"instances": ROWS.tolist()}) == {
        "predictions": ["second", "first"]
    }
    assert [each["name"] for each in rest(world, "/v2/models/m/infer", oip_body())["outputs"]] == [
        "label"
    ]
    assert set(classifier.calls) == {"predict"}, (
        "probabilities cost nothing where nobody names them"
    )


def oip_body(*names: str) -> dict[str, Any]:
    given = {"name": "x", "datatype": "FP64", "shape": [2, 2], "data": ROWS.ravel().tolist()}
    return {"inputs": [given]} | ({"outputs": [{"name": name} for name in names]} if names else {})


@pytest.mark.parametrize("name", ["probabilities", "predict_proba"])
def test_probabilities_are_answered_where_they_are_named(
    world: World, classifier: Classifier, name: str
) -> None:
    expected = classifier.predict_proba(ROWS)
    for _ in range(2):
        answer = predict(world, name, "label")
        assert sorted(answer.outputs) == sorted([name, "label"])
        assert answer.model_spec.signature_name == "serving_default"
        assert list(answer.outputs[name].double_val) == expected.ravel().tolist()
        assert list(answer.outputs["label"].string_val) == [b"second", b"first"]
        raw = infer(world, name)
        assert [(each.name, each.datatype, list(each.shape)) for each in raw.outputs] == [
            (name, "FP64", [2, 2])
        ]
        assert raw.raw_output_contents[0] == expected.tobytes()
    (output,) = rest(world, "/v2/models/m/infer", oip_body(name))["outputs"]
    assert (output["name"], output["shape"], output["data"]) == (
        name,
        [2, 2],
        expected.ravel().tolist(),
    )


def test_mlservers_name_of_the_label(world: World) -> None:
    (output,) = rest(world, "/v2/models/m/infer", oip_body("predict"))["outputs"]
    assert (output["name"], output["data"]) == ("predict", ["second", "first"])


def test_they_are_listed(world: World) -> None:
    version = world.table.find("m")
    outputs = model_documents.model_metadata(version, [1])["outputs"]
    assert [each["name"] for each in outputs] == [
        "label",
        "probabilities",
        "predict",
        "predict_proba",
        "output",
    ]
    assert outputs[1] == {"name": "probabilities", "datatype": "FP64", "shape": [-1, 2]}
    assert "and where they are named (probabilities: float64 [?, 2]" in predict(world, "none")


def test_requests_are_counted_for_the_signature_they_name(world: World) -> None:
    for names in ((), ("probabilities",), ("label", "probabilities")):
        predict(world, *names)
    version = world.table.find("m")
    assert sum(version.tally("serving_default").answers.values()) == 3
    assert sum(version.tally("predict_proba").answers.values()) == 0
    assert version.idle
    assert version.waiting("serving_default") == 0


class Regression:
    """Adds the features."""

    n_features_in_ = 2

    def predict(self, rows: Any) -> Any:
        return rows.sum(axis=1)


def test_a_regression_has_the_alias_only(world: World) -> None:
    model = loaded(SklearnModel(Regression(), describe_estimator(Regression())))
    (alias,) = model.signatures["serving_default"].on_request
    assert str(alias) == "output: float64 [?]"


@pytest.mark.parametrize("names", [("output",), ("output", "label"), ("label", "output")])
def test_the_alias_is_answered_where_it_is_named_and_is_the_models_own_output(
    world: World, names: tuple[str, ...]
) -> None:
    for _ in range(2):
        answer = predict(world, *names)
        assert sorted(answer.outputs) == sorted(names)
        assert list(answer.outputs["output"].string_val) == [b"second", b"first"]
        assert [each.name for each in infer(world, *names).outputs] == list(names)
    outputs = rest(world, "/v2/models/m/infer", oip_body("output"))["outputs"]
    assert [(each["name"], each["data"]) for each in outputs] == [("output", ["second", "first"])]


def test_a_model_of_a_format_whose_author_names_the_output_has_the_alias(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(
        "class Model:\n    def load(self, folder): pass\n    def predict(self, inputs): "
        "return {'y': inputs['x'] * 2}\n"
    )
    side = {"dtype": "float64", "shape": [-1, 2]}
    (tmp_path / "signature.json").write_text(
        json.dumps({"inputs": [{"name": "x", **side}], "outputs": [{"name": "y", **side}]})
    )
    model = loading.load(tmp_path, LoadOptions(allow_code=True))
    world.table.put(LoadedVersion("m", 1, model, world.table.models["m"].versions[1]._context))
    assert list(predict(world).outputs) == ["y"]
    answer = predict(world, "output")
    assert list(answer.outputs["output"].double_val) == (ROWS * 2).ravel().tolist()
    assert list(answer.outputs) == ["output"]


def test_no_alias_beside_the_names_that_tensorflow_serving_prescribes() -> None:
    usual = describe_estimator(Regression())["serving_default"]
    for method in (CLASSIFY, REGRESS):
        signature = replace(usual, method=method)
        assert with_output_alias(signature) is signature


def test_no_alias_beside_several_outputs_or_one_of_that_name() -> None:
    usual = describe_estimator(Regression())["serving_default"]
    (label,) = usual.outputs
    plain = replace(usual, on_request=())
    for outputs in ((label, replace(label, name="other")), (replace(label, name="output"),)):
        signature = replace(plain, outputs=outputs)
        assert with_output_alias(signature) is signature
    aliased = with_output_alias(usual)
    assert with_output_alias(aliased) is aliased, "once"

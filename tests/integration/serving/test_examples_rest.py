"""Classify and Regress over REST and gRPC: features of examples become the inputs of a model by
their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from onnx import TensorProto, helper

from cloud_ml.serving.protos import message
from integration.serving.test_rest import ask
from support.serving import Running, call, model_server, save

CLASSIFY, REGRESS = "/v1/models/judge:classify", "/v1/models/linear:regress"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two labels with half of two numbers as their scores."""
    base = tmp_path_factory.mktemp("judge")
    nodes = [
        helper.make_node("Identity", ["label"], ["classes"]),
        helper.make_node("Mul", ["x", "half"], ["scores"]),
    ]
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    inputs, outputs = [
        [helper.make_tensor_value_info(name, kind, ["rows", 2]) for name, kind in side]
        for side in (
            [("label", TensorProto.STRING), ("x", TensorProto.FLOAT)],
            [("classes", TensorProto.STRING), ("scores", TensorProto.FLOAT)],
        )
    ]
    graph = helper.make_graph(nodes, "judge", inputs, outputs, [half])
    save(
        base / "1",
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
    )
    with model_server("--model_name", "judge", "--model_base_path", str(base)) as running:
        yield running


def test_classes_with_their_scores(judge: Running) -> None:
    request = {
        "examples": [
            {"label": ["a", {"b64": "Yg=="}], "x": [0.2, 1.0]},
            {"label": ["c", "d"], "x": [2, 3]},
        ]
    }
    expected = {"results": [[["a", 0.1], ["b", 0.5]], [["c", 1.0], ["d", 1.5]]]}
    assert ask(judge, "POST", CLASSIFY, request) == (200, expected)


def test_a_context_is_part_of_each_example(judge: Running) -> None:
    request = {"context": {"label": ["a", "b"]}, "examples": [{"x": [1, 2]}, {"x": [3, 4]}]}
    expected = {"results": [[["a", 0.5], ["b", 1.0]], [["a", 1.5], ["b", 2.0]]]}
    assert ask(judge, "POST", CLASSIFY, request) == (200, expected)


def test_the_same_over_grpc(judge: Running) -> None:
    request = message("tensorflow.serving.ClassificationRequest")()
    request.model_spec.name = "judge"
    features = request.input.example_list.examples.add().features.feature
    features["label"].bytes_list.value.extend([b"a", b"b"])
    features["x"].int64_list.value.extend([1, 2])
    with judge.channel() as channel:
        path = "/tensorflow.serving.PredictionService/Classify"
        response = call(channel, path, request, "tensorflow.serving.ClassificationResponse")
    assert [(each.label, each.score) for each in response.result.classifications[0].classes] == [
        ("a", 0.5),
        ("b", 1.0),
    ]


def test_regressions(linear: Running) -> None:
    assert ask(linear, "POST", REGRESS, {"examples": [{"x": 1.0}, {"x": [2]}]}) == (
        200,
        {"results": [12.0, 14.0]},
    )
    status, document = ask(linear, "POST", REGRESS, b'{"examples": [{"x": NaN}, {"x": Infinity}]}')
    assert (status, str(document["results"])) == (200, "[nan, inf]")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "'examples' is not a list"),
        ({"examples": []}, "'examples' is not a list"),
        ({"examples": [1]}, "examples[0] is not an object"),
        ({"examples": [{"x": 1}], "context": 1}, "context is not an object"),
        ({"examples": [{"x": 1}], "signature_name": 1}, "'signature_name' is no string"),
        ({"examples": [{"x": 1}], "signature_name": "z"}, "no signature 'z'"),
        ({"examples": [{"x": None}]}, "examples[0].x has a value that is not a number"),
        ({"examples": [{"x": [[1]]}]}, "examples[0].x has a value that is not a number"),
        ({"examples": [{"x": {"a": 1}}]}, "examples[0].x has a value that is not a number"),
        ({"examples": [{"x": [1, 1.5]}]}, "examples[0].x mixes values"),
        ({"examples": [{"x": 2**63}]}, "no int64"),
        ({"examples": [{"x": "a"}]}, "feature 'x' of example 0 is bytes_list"),
        ({"examples": [{"x": 1}, {"x": [1, 2]}]}, "differ in how many values feature 'x' has"),
        ({"examples": [{"x": [1, 2]}]}, "feature 'x' of 2 values does not fit"),
        ({"examples": [{"y": 1}]}, "input 'x' is missing; there is no input 'y'"),
    ],
)
def test_what_is_wrong_is_told(linear: Running, body: Any, words: str) -> None:
    status, document = ask(linear, "POST", REGRESS, body)
    assert status == 400
    assert words in document["error"]


def test_who_does_not_classify_says_what_it_takes(linear: Running) -> None:
    status, document = ask(linear, "POST", "/v1/models/linear:classify", {"examples": [{"x": 1}]})
    assert status == 400
    assert "takes (x: float32 [?])" in document["error"]

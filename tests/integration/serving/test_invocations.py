"""MLflow's scoring protocol and SageMaker's container contract."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from integration.serving.test_rest import ask
from support.serving import Running, model_server, save, save_linear

PATH = "/invocations"


def _sum_model(folder: Path) -> None:
    """``y`` is the sum of three features of a row."""
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    inputs, outputs = [
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows"])],
    ]
    save(folder, _model(helper.make_graph(nodes, "sum", inputs, outputs, [axes])))


def _typed_model(folder: Path) -> None:
    """Gives back an integer, a text and a truth value of each row."""
    kinds = {"number": TensorProto.INT64, "text": TensorProto.STRING, "truth": TensorProto.BOOL}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in kinds]
    sides = [
        [
            helper.make_tensor_value_info(f"{name}{end}", kind, ["rows", 1])
            for name, kind in kinds.items()
        ]
        for end in ("", "_out")
    ]
    save(folder, _model(helper.make_graph(nodes, "typed", *sides)))


def _model(graph: Any) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("sum")
    _sum_model(base / "1")
    with model_server("--model_name", "sum", "--model_base_path", str(base)) as running:
        yield running


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("typed")
    _typed_model(base / "1")
    with model_server("--model_name", "typed", "--model_base_path", str(base)) as running:
        yield running


def invoke(
    running: Running, body: Any, kind: str = "application/json", **more: str
) -> tuple[int, Any]:
    data = body.encode() if isinstance(body, str) else body
    return ask(running, "POST", PATH, data, Content_Type=kind, **more)


def test_ping_is_200_when_every_model_answers(features: Running, tmp_path: Path) -> None:
    for path in ("/ping", "/health"):
        connection = http.client.HTTPConnection("127.0.0.1", features.port, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"\n")
        connection.close()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"junk")
    with model_server("--model_name", "broken", "--model_base_path", str(tmp_path)) as running:
        assert ask(running, "GET", "/ping") == (503, {"error": "not every model answers: broken"})


SUMS = {"predictions": [6.0, 15.0]}


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, 2, 3], [4, 5.0, 6]]}},
        {
            "dataframe_split": {
                "columns": ["a", "b", "c"],
                "index": [7, 8],
                "data": [[1, 2, 3], [4, 5, 6]],
            },
            "params": {},
        },
        {"dataframe_split": {"data": [[1, 2, 3], [4, 5, 6]]}},
        {"dataframe_split": {"columns": ["x"], "data": [[[1, 2, 3]], [[4, 5, 6]]]}},
        {"dataframe_records": [{"a": 1, "b": 2, "c": 3}, {"a": 4, "b": 5, "c": 6}]},
        {"dataframe_records": [{"a": 1, "b": 2, "c": 3}, {"c": 6, "b": 5, "a": 4}]},
        {"dataframe_records": [{"x": [1, 2, 3]}, {"x": [4, 5, 6]}]},
        {"instances": [[1, 2, 3], [4, 5, 6]]},
        {"instances": [{"x": [1, 2, 3]}, {"x": [4, 5, 6]}]},
        {"inputs": [[1, 2, 3], [4, 5, 6]]},
        {"inputs": {"x": [[1, 2, 3], [4, 5, 6]]}, "params": {"signature_name": "serving_default"}},
    ],
    ids=json.dumps,
)
def test_every_form_of_mlflow(features: Running, body: Any) -> None:
    for kind in ("application/json", "application/json; charset=utf-8", ""):
        assert invoke(features, json.dumps(body), kind) == (200, SUMS)


def test_lines_of_values(features: Running) -> None:
    assert invoke(features, "a,b,c\n1,2,3\n4,5,6\n", "text/csv") == (200, SUMS)
    assert invoke(
        features, 'a,"b","c, d"\r\n1,"2", 3\r\n4,5,6e0\r\n\r\n', "text/csv; charset=utf-8"
    ) == (200, SUMS)
    assert invoke(features, "1,2,3\n4,5,6", "text/csv; header=absent") == (200, SUMS)


def test_what_is_missing_is_not_a_number(features: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", features.port, timeout=60)
    for body, kind in (
        (
            {"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, None, 3], [1, 2, 3]]}},
            "application/json",
        ),
        ({"dataframe_records": [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]}, "application/json"),
        ("a,b,c\n1,,3\n1,2,3", "text/csv"),
    ):
        text = body if isinstance(body, str) else json.dumps(body)
        connection.request("POST", PATH, text, {"Content-Type": kind})
        assert connection.getresponse().read() == b'{"predictions":[NaN,6.0]}'
    connection.close()


def test_columns_are_inputs_by_their_names(typed: Running) -> None:
    rows = [{"number_out": [2**62 + 1], "text_out": ["a"], "truth_out": [True]},
            {"number_out": [-1], "text_out": [""], "truth_out": [False]}]  # fmt: skip
    records = [
        {"text": "a", "truth": True, "number": 2**62 + 1},
        {"number": -1, "text": "", "truth": False},
    ]
    assert invoke(typed, json.dumps({"dataframe_records": records})) == (200, {"predictions": rows})
    split = {
        "columns": ["text", "number", "truth"],
        "data": [["a", 2**62 + 1, True], ["", -1, False]],
    }
    assert invoke(typed, json.dumps({"dataframe_split": split})) == (200, {"predictions": rows})
    lines = f"truth,number,text\nTrue,{2**62 + 1},a\nfalse,-1,\n"
    assert invoke(typed, lines, "text/csv") == (200, {"predictions": rows})


def split(data: Any, columns: Any = ("a", "b", "c"), **more: Any) -> str:
    return json.dumps({"dataframe_split": {"columns": columns, "data": data} | more})


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        ("{", "", 400, "not valid JSON"),
        ("[]", "", 400, "not a JSON object"),
        ("{}", "", 400, "the body has none of dataframe_split"),
        ('{"instances": [], "inputs": []}', "", 400, "it takes one"),
        ('{"inputs": [[1, 2, 3]], "extra": 1}', "", 400, "the body has 'extra'"),
        ('{"inputs": [[1, 2, 3]], "inputs": []}', "", 400, "'inputs' twice"),
        ('{"inputs": [[1, 2, 3]], "params": {"k": 1}}', "", 501, "params has 'k'"),
        ('{"inputs": [[1, 2, 3]], "params": 1}', "", 400, "'params' is not an object"),
        ('{"inputs": [[1, 2, 3]], "params": {"signature_name": '
         '1}}', "", 400, "signature_name is no string"),
        ('{"inputs": [[1, 2, 3]], "params": {"signature_name": "z"}}', "", 404, "no signature 'z'"),
        ('{"dataframe_split": []}', "", 400, "not an object of 'columns'"),
        (split([[1, 2, 3]], other=1), "", 400, "not an object of 'columns'"),
        (split([[1, 2, 3]], 1), "", 400, "not a list of names"),
        (split([1, 2, 3]), "", 400, "not a list of rows"),
        (split([]), "", 400, "has no rows"),
        (split([[1, 2, 3], [1, 2]]), "", 400, "data[1] has 2 values for 3 columns"),
        (split([[1, 2, 3]], ["a", "b", "a"]), "", 400, "a column twice"),
        (split([[1, "x", 3]]), "", 400, 'a string "x"'),
        (split([[1, 2]], ["a", "b"]), "", 400, "has shape [1, 2]"),
        (split([[[1, 2, 3], 4]], ["x", "k"]), "", 400, "there is no input 'k'"),
        ('{"dataframe_records": []}', "", 400, "not a list of one object or more"),
        ('{"dataframe_records": [1]}', "", 400, "not a list of one object or more"),
        ("a,b,c", "text/csv", 400, "no row of values below its header"),
        ("", "text/csv", 400, "no row of values"),
        ("a,b,c\n1,2", "text/csv", 400, "the body[0] has 2 values for 3 columns"),
        ("a,b,c\n1,2,x", "text/csv", 400, "the value 'x' is no float32"),
        ("a,b,c\n1,2,1_0", "text/csv", 400, "the value '1_0' is no float32"),
        ('a,b,c\n1,2,"3', "text/csv", 400, "not valid CSV"),
        (b"a,b,c\n1,2,\xff", "text/csv", 400, "not valid UTF-8"),
        ("1", "text/plain", 400, "content-type is 'text/plain'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(
    features: Running, body: Any, kind: str, status: int, words: str
) -> None:
    answer = invoke(features, body, kind or "application/json")
    assert answer[0] == status
    assert words in answer[1]["error"]


def test_values_that_columns_do_not_take(typed: Running) -> None:
    for line, words in (("true,x,a", "'x' is no int64"), ("yes,1,a", "'yes' is no bool"), ("true,1.5,a", "no int64"),
                        ("true,,a", "'' is no int64"), ("true,9223372036854775808,a", "no int64")):  # fmt: skip
        status, document = invoke(typed, f"truth,number,text\n{line}", "text/csv")
        assert (status, words in document["error"]) == (400, True), document
    status, document = invoke(typed, split([[1, 2]], ["number", "text"]))
    assert (status, "there is no column 'truth'" in document["error"]) == (400, True)


def test_a_server_of_several_models_is_told_which(tmp_path: Path) -> None:
    for name, slope in (("a", 2.0), ("b", 3.0)):
        save_linear(tmp_path / name / "1", slope=slope)
    configs = " ".join(
        f'config {{ name: "{name}" base_path: "{tmp_path / name}" }}' for name in "ab"
    )
    (tmp_path / "models").write_text(f"model_config_list {{ {configs} }}")
    with model_server("--model_config_file", str(tmp_path / "models")) as running:
        status, document = invoke(running, '{"instances": [1]}')
        assert (
            status,
            "name one of a, b by x-amzn-sagemaker-target-model" in document["error"],
        ) == (
            400,
            True,
        )
        named = {"X_Amzn_SageMaker_Target_Model": "b"}
        assert invoke(running, '{"instances": [1]}', **named) == (200, {"predictions": [13.0]})
        assert invoke(running, '{"instances": [1]}', X_Amzn_SageMaker_Target_Model="c")[0] == 404

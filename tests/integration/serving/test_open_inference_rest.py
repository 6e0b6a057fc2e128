"""The Open Inference Protocol over REST, as tritonclient speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from integration.serving.test_rest import ask
from support.serving import Running, model_server, save, save_linear

pytestmark = pytest.mark.xdist_group("echo")

INFER = "/v2/models/echo/infer"
TYPES = {
    "f": (TensorProto.FLOAT, "FP32"),
    "i": (TensorProto.INT64, "INT64"),
    "s": (TensorProto.STRING, "BYTES"),
    "b": (TensorProto.BOOL, "BOOL"),
    "h": (TensorProto.FLOAT16, "FP16"),
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A model that gives back what it takes, of many types."""
    base = tmp_path_factory.mktemp("echo")
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in TYPES]
    sides = [
        [
            helper.make_tensor_value_info(name + end, kind, ["rows", 2])
            for name, (kind, _) in TYPES.items()
        ]
        for end in ("", "_out")
    ]
    graph = helper.make_graph(nodes, "echo", *sides)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for version in ("1", "2"):
        save(base / version, model)
    with model_server("--model_name", "echo", "--model_base_path", str(base)) as running:
        yield running


@pytest.fixture(scope="module")
def client(echo: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{echo.port}") as made:
        yield made


def arrays() -> dict[str, Any]:
    return {
        "f": np.array([[1.5, -0.1], [np.float32(1 / 3), 0]], np.float32),
        "i": np.array([[2**62 + 1, -1], [0, 1]], np.int64),
        "s": np.array([["a", "é"], ["", '"']], object),
        "b": np.array([[True, False], [False, True]]),
        "h": np.array([[0.5, 1], [2, 65504]], np.float16),
    }


def inputs(*, binary: bool, **other: Any) -> list[triton.InferInput]:
    made = []
    for name, array in (arrays() | other).items():
        made.append(triton.InferInput(name, list(array.shape), TYPES[name][1]))
        made[-1].set_data_from_numpy(array, binary_data=binary or name == "h")
    return made


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("way", [None, "gzip", "deflate"])
def test_every_type_there_and_back(
    client: triton.InferenceServerClient, given: bool, back: bool, way: str | None
) -> None:
    requested_outputs = [
        triton.InferRequestedOutput(f"{name}_out", binary_data=back) for name in TYPES
    ]
    answer = client.infer(
        "echo", inputs(binary=given), outputs=requested_outputs, request_id="seven",
        request_compression_algorithm=way, response_compression_algorithm=way,
    )  # fmt: skip
    response = answer.get_response()
    assert (response["model_name"], response["id"]) == ("echo", "seven")
    for name, array in arrays().items():
        made = answer.as_numpy(f"{name}_out")
        if name == "s" and back:
            made = np.array([[each.decode() for each in row] for row in made], object)
        np.testing.assert_array_equal(made, array)


def test_outputs_come_as_bytes_where_none_are_named(client: triton.InferenceServerClient) -> None:
    answer = client.infer("echo", inputs(binary=True), model_version="2")
    assert answer.get_response()["model_version"] == "2"
    np.testing.assert_array_equal(answer.as_numpy("f_out"), arrays()["f"])
    only = client.infer("echo", inputs(binary=True), outputs=[triton.InferRequestedOutput("i_out")])
    assert [each["name"] for each in only.get_response()["outputs"]] == ["i_out"]


def test_many_numbers_as_json(client: triton.InferenceServerClient) -> None:
    many = np.random.default_rng(3).standard_normal((4000, 2)).astype(np.float32)
    given = {name: np.resize(array, (4000, 2)) for name, array in arrays().items()} | {"f": many}
    requested_outputs = [
        triton.InferRequestedOutput(f"{name}_out", binary_data=False) for name in TYPES
    ]
    answer = client.infer("echo", inputs(binary=False, **given), outputs=requested_outputs)
    for name, array in given.items():
        np.testing.assert_array_equal(answer.as_numpy(f"{name}_out"), array)


def test_what_there_is(client: triton.InferenceServerClient, echo: Running) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "2")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "cloudml-serve"
    metadata = client.get_model_metadata("echo")
    assert metadata["name"] == "echo"
    assert {"name": "f", "datatype": "FP32", "shape": [-1, 2]} in metadata["inputs"]
    assert client.get_model_config("echo")["input"][0]["dims"] == [2]
    assert {
        "name": "echo",
        "version": "2",
        "state": "READY",
        "reason": "",
    } in client.get_model_repository_index()
    assert ask(echo, "GET", INFER)[0] == 404


def test_health_has_the_bodies_that_kserve_reads(echo: Running) -> None:
    assert ask(echo, "GET", "/") == (200, {"status": "alive"})  # in its first protocol
    assert ask(echo, "GET", "/v2/health/live") == (200, {"live": True})
    assert ask(echo, "GET", "/v2/health/ready") == (200, {"ready": True})
    assert ask(echo, "GET", "/v2/models/echo/ready") == (200, {"name": "echo", "ready": True})
    assert ask(echo, "GET", "/v2/models/echo/versions/2/ready") == (
        200,
        {"name": "echo", "ready": True},
    )
    assert ask(echo, "GET", "/v2/models/other/ready")[0] == 404


def test_a_server_whose_model_cannot_be_loaded_lives_and_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"junk")
    with model_server("--model_name", "broken", "--model_base_path", str(tmp_path)) as running:
        assert ask(running, "GET", "/v2/health/live") == (200, {"live": True})
        unready = {"ready": False, "error": "not every model answers: broken"}
        assert ask(running, "GET", "/v2/health/ready") == (503, unready)
        status, document = ask(running, "GET", "/v2/models/broken/ready")
        assert (
            status,
            document["name"],
            document["ready"],
            "INVALID_PROTOBUF" in document["error"],
        ) == (
            503,
            "broken",
            False,
            True,
        )


def test_parameters_that_are_switched_off_are_no_reason_to_refuse(echo: Running) -> None:
    off = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    assert ask(echo, "POST", INFER, body(parameters=off))[0] == 200


def body(**changes: Any) -> dict[str, Any]:
    shape = [1, 2]
    given = {"f": [1, 2], "i": [[1, 2]], "s": ["a", "b"], "b": [True, False], "h": [1, 2]}
    each = [{"name": n, "shape": shape, "datatype": TYPES[n][1], "data": given[n]} for n in TYPES]
    each[0] |= changes.pop("f", {})
    return {"inputs": [entry for entry in each if entry["name"]]} | changes


def test_flat_and_nested_lists_mean_the_same(echo: Running) -> None:
    status, document = ask(echo, "POST", INFER, body(id="x"))
    assert status == 200
    assert document["id"] == "x"
    assert document["outputs"][0] == {
        "name": "f_out",
        "datatype": "FP32",
        "shape": [1, 2],
        "data": [1.0, 2.0],
    }
    assert document["outputs"][1]["data"] == [1, 2]


@pytest.mark.parametrize("length", [None, 3000])
@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"f": {"name": "other"}}, 400, "there is no input 'other'"),
        ({"f": {"name": "i", "datatype": "INT64"}}, 400, "no name of its own"),
        ({"f": {"name": ""}}, 400, "input 'f' is missing"),
        ({"f": {"datatype": "FP64"}}, 400, "input 'f' is float64, not float32 (FP32)"),
        ({"f": {"datatype": "X"}}, 400, "of datatype 'X'"),
        ({"f": {"shape": [2]}}, 400, "has shape [2]"),
        ({"f": {"shape": [1, -2]}}, 400, "sizes are 0 or more"),
        ({"f": {"shape": "x"}}, 400, "sizes are 0 or more"),
        ({"f": {"shape": [2**50, 2]}}, 400, "sizes are 0 or more"),
        ({"f": {"data": [1]}}, 400, "1 values, shape [1, 2] takes 2"),
        ({"f": {"data": [[1], [2]]}}, 400, "data of shape [2, 1]"),
        ({"f": {"data": [[1], [2, 3]]}}, 400, "ragged"),
        ({"f": {"data": ["a", "b"]}}, 400, 'a string "a"'),
        ({"f": {"data": 1}}, 400, "no list of data"),
        ({"f": {"parameters": {"binary_data_size": 8}}}, 400, "0 bytes are left"),
        ({"f": {"parameters": 1}}, 400, "'parameters' is not an object"),
        (
            {"f": {"parameters": {"shared_memory_region": "r"}}},
            501,
            "'shared_memory_region' of input 'f'",
        ),
        ({"inputs": 1}, 400, "'inputs' is not a list"),
        ({"outputs": [{"name": "z"}]}, 400, "no output 'z'"),
        ({"outputs": [1]}, 400, "'outputs' is not a list"),
        (
            {"outputs": [{"name": "f_out", "parameters": {"classification": 2}}]},
            501,
            "classification",
        ),
        ({"id": 1}, 400, "'id' is no string"),
        (
            {"parameters": {"sequence_id": 3, "sequence_start": True}},
            501,
            "'sequence_id' of the request is not",
        ),
        (
            {"parameters": {"sequence_id": "a", "sequence_end": True}},
            501,
            "'sequence_id' of the request is not",
        ),
        (
            {"parameters": {"sequence_end": True}},
            501,
            "'sequence_end' of the request is not offered",
        ),
        (
            {"parameters": {"shared_memory_region": "r"}},
            501,
            "'shared_memory_region' of the request is not",
        ),
        (
            {"f": {"parameters": {"classification": 2}}},
            501,
            "'classification' of input 'f' is not offered",
        ),
        ({"parameters": [1]}, 400, "'parameters' is not an object"),
        ({"parameters": {"signature_name": "z"}}, 404, "no signature 'z'"),
    ],
)
def test_what_is_wrong_is_told(
    echo: Running, changes: dict[str, Any], status: int, words: str, length: int | None
) -> None:
    """The same words, whether a body is short or so long that lists are read apart from it."""
    made = json.dumps(body(**dict(changes)))
    answer = ask(echo, "POST", INFER, (made + " " * (length or 0)).encode())
    assert answer[0] == status
    assert words in answer[1]["error"]


def test_inputs_of_different_numbers_of_rows_are_for_the_model_to_judge(echo: Running) -> None:
    status, document = ask(
        echo, "POST", INFER, body(f={"shape": [3, 2], "data": [1, 2, 3, 4, 5, 6]})
    )
    assert status == 200
    assert [each["shape"] for each in document["outputs"]] == [[3, 2], *[[1, 2]] * 4]
    assert document["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]


def test_bytes_that_do_not_fit_their_document(echo: Running) -> None:
    for size, rest, words in (
        (8, b"1234567", "7 bytes are left"),
        (7, b"1234567", "takes 8"),
        (8, b"123456789", "1 bytes after the tensors"),
    ):
        made = body(f={"parameters": {"binary_data_size": size}})
        del made["inputs"][0]["data"]
        text = json.dumps(made).encode()
        status, document = ask(
            echo, "POST", INFER, text + rest, Inference_Header_Content_Length=str(len(text))
        )
        assert (status, words in document["error"]) == (400, True)
    for length in ("99999", "-1", "x", "1" * 5000):
        status, document = ask(echo, "POST", INFER, b"{}", Inference_Header_Content_Length=length)
        assert (status, "Inference-Header-Content-Length is" in document["error"]) == (400, True)


def test_strings_that_are_cut(echo: Running) -> None:
    for raw in (
        b"\x05\0\0\0ab",
        b"\x01\0\0\0a",
        b"\x01\0\0\0a\x01\0\0\0b\x01",
        b"\xff\xff\xff\xff",
    ):
        made = body()
        entry = made["inputs"][2]
        del entry["data"]
        entry["parameters"] = {"binary_data_size": len(raw)}
        text = json.dumps(made).encode()
        status, document = ask(
            echo, "POST", INFER, text + raw, Inference_Header_Content_Length=str(len(text))
        )
        assert (status, "input 's' has" in document["error"]) == (400, True)


def test_text_that_onnx_does_not_have(echo: Running) -> None:
    made = body()
    made["inputs"][2]["data"] = ["a", {"b64": "/w=="}]
    assert "no UTF-8" in ask(echo, "POST", INFER, made)[1]["error"]


def test_who_may_not_load_models_is_told(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="--allow_model_control"):
        client.load_model("echo")


def test_models_are_loaded_and_unloaded_by_who_may(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    flags = ("--model_name", "linear", "--model_base_path", str(tmp_path), "--allow_model_control")
    with (
        model_server(*flags) as running,
        triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client,
    ):
        assert client.is_model_ready("linear")
        client.unload_model("linear")
        assert not client.is_model_ready("linear")
        status, document = ask(running, "GET", "/v2/models/linear/ready")
        assert (
            status,
            document["name"],
            document["ready"],
            "it was unloaded" in document["error"],
        ) == (
            503,
            "linear",
            False,
            True,
        )
        assert ask(running, "GET", "/v2/health/ready") == (
            200,
            {"ready": True},
        )  # it shall not answer
        assert client.get_model_repository_index()[0]["state"] != "READY"
        client.load_model("linear")
        assert client.is_model_ready("linear")
        assert client.get_model_repository_index() == [
            {"name": "linear", "version": "1", "state": "READY", "reason": ""}
        ]
        with pytest.raises(InferenceServerException, match="no model 'other' is configured"):
            client.load_model("other")
        with pytest.raises(InferenceServerException, match="'config' is not offered"):
            client.load_model("linear", config="{}")


def test_a_name_twice_is_judged(echo: Running, tmp_path: Path) -> None:
    text = b'{"inputs": [], "inputs": []}'
    assert ask(echo, "POST", INFER, text)[1]["error"] == "the body has 'inputs' twice in one object"

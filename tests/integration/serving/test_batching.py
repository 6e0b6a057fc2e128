"""Calls of several clients run together only where the rows of a model are known to be
independent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest

from cloud_ml.serving.protos import message
from integration.serving.test_metrics import metrics
from integration.serving.test_rest import ask
from support.onnx_graphs import MIXES, model, node
from support.serving import Running, call, model_server, predict, predict_request, save, save_linear

pytestmark = pytest.mark.xdist_group("batching")

CENTRES = """
import numpy as np

class Model:
    {attribute}

    def load(self, folder):
        self.most = 0

    def predict(self, inputs):
        x = inputs["x"]
        self.most = max(self.most, len(x))
        return {{"y": x - x.mean(), "most": np.full(len(x), self.most, np.float32)}}
"""


def python_model(folder: Path, attribute: str = "pass", **signature: Any) -> None:
    """A model that subtracts the mean of what it is called with, and tells the most rows that it
    saw.
    """
    folder.mkdir(parents=True)
    tensors = [{"name": name, "dtype": "float32", "shape": [-1]} for name in ("x", "y", "most")]
    signature_document = {"inputs": tensors[:1], "outputs": tensors[1:]} | signature
    (folder / "signature.json").write_text(json.dumps({"serving_default": signature_document}))
    (folder / "model.py").write_text(CENTRES.format(attribute=attribute))


def config(base: Path, *names: str) -> str:
    models = [f'config {{ name: "{name}" base_path: "{base / name}" }}' for name in names]
    file = base / "models.config"
    file.write_text(f"model_config_list {{ {' '.join(models)} }}")
    return str(file)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A linear model, a graph that mixes rows, and Python models that say this or that of
    themselves.
    """
    base = tmp_path_factory.mktemp("several")
    save_linear(base / "linear" / "1")
    save(base / "centred" / "1", MIXES["reduce mean"]())
    python_model(base / "silent" / "1")
    python_model(base / "willing" / "1", "batching = True")
    python_model(base / "unwilling" / "1", "batching = False")
    python_model(base / "told" / "1", batching=True)
    flags = [
        "--model_config_file",
        config(base, "linear", "centred", "silent", "willing", "unwilling", "told"),
    ]
    with model_server(
        *flags, "--allow_models_that_run_code", "--enable_model_warmup=false"
    ) as running:
        yield running


def decision(running: Running, name: str) -> dict[str, Any]:
    """What metadata say of the only signature."""
    status, document = ask(running, "GET", f"/v1/models/{name}/metadata")
    assert status == 200
    made: dict[str, Any] = document["metadata"]["batching"]["serving_default"]
    return made


@pytest.mark.parametrize(
    ("name", "enabled", "decided_by", "reason"),
    [
        ("linear", True, "graph", "every operator of the graph keeps rows apart"),
        ("centred", False, "graph", "operator ReduceMean: it reduces over the rows"),
        ("silent", False, "default", "nothing shows that its rows are independent of each other"),
        ("willing", True, "model", "attribute batching of its class"),
        ("unwilling", False, "model", "attribute batching of its class"),
        ("told", True, "model", "signature.json says so"),
    ],
)
def test_what_was_decided_and_why_is_told(
    several: Running, name: str, enabled: bool, decided_by: str, reason: str
) -> None:
    expected = {"enabled": enabled, "decided_by": decided_by, "reason": reason}
    assert decision(several, name) == expected
    _, document = ask(several, "GET", f"/v2/models/{name}")
    assert document["parameters"] == {
        f"batching.serving_default.{key}": value for key, value in expected.items()
    }
    _, document = ask(several, "GET", f"/v2/models/{name}/config")
    assert (document["max_batch_size"] > 0) is enabled
    labels = f'model="{name}",version="1",signature="serving_default",decided_by="{decided_by}"'
    assert f"cloudml_serving_batched{{{labels}}} {int(enabled)}" in metrics(several)
    with several.channel() as channel:
        request = _message("inference.ModelMetadataRequest", name=name)
        answer = call(
            channel,
            "/inference.GRPCInferenceService/ModelMetadata",
            request,
            "inference.ModelMetadataResponse",
        )
        assert answer.parameters["batching.serving_default.enabled"].bool_param is enabled
        assert answer.parameters["batching.serving_default.reason"].string_param == reason
        request = _message(
            "tensorflow.serving.GetModelMetadataRequest", metadata_field=["batching"]
        )
        request.model_spec.name = name
        path = "/tensorflow.serving.PredictionService/GetModelMetadata"
        document = call(
            channel, path, request, "tensorflow.serving.GetModelMetadataResponse"
        ).metadata["batching"]
        decisions = _message("google.protobuf.Struct")
        assert document.Unpack(decisions)
        assert (
            decisions.fields["serving_default"].struct_value.fields["decided_by"].string_value
            == decided_by
        )


def _message(kind: str, **fields: Any) -> Any:
    return message(kind)(**fields)


@pytest.mark.parametrize("name", ["silent", "unwilling"])
def test_callers_of_a_model_that_mixes_rows_never_see_each_other(
    several: Running, name: str
) -> None:
    def ask_once(number: int) -> bool:
        x = np.arange(1 + number % 4, dtype=np.float32) + 100 * number
        answer = predict(channel, predict_request(name, x=x))
        return answer["y"] == (x - x.mean()).tolist() and max(answer["most"]) <= 4

    with several.channel() as channel, ThreadPoolExecutor(16) as callers:
        assert all(callers.map(ask_once, range(400)))


def test_rows_of_one_call_stay_together(several: Running) -> None:
    with several.channel() as channel:
        assert predict(channel, predict_request("silent", x=[1.0, 2, 3, 6]))["y"] == [-2, -1, 0, 3]
    status, document = ask(several, "POST", "/v1/models/silent:predict", {"instances": [1.0, 3]})
    assert status == 200
    assert [row["y"] for row in document["predictions"]] == [-1, 1]


@pytest.fixture(scope="module")
def mixing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of all models that mix rows, in the order of the table."""
    base = tmp_path_factory.mktemp("mixing")
    for place, made in enumerate(MIXES.values()):
        save(base / f"m{place}" / "1", made())
    with model_server(
        "--model_config_file", config(base, *(f"m{place}" for place in range(len(MIXES))))
    ) as running:
        yield running


def _runtime_answers(session: Any, model: Any) -> list[tuple[dict[str, Any], Any]]:
    """Inputs, and what the runtime answers: None for an error, ``...`` where it answers now
    this, now that.
    """
    dims = model.graph.input[0].type.tensor_type
    tail = [dim.dim_value for dim in dims.shape.dim][1:]
    dtype = np.int64 if dims.elem_type == 7 else np.float32
    random = np.random.default_rng(1)
    made: list[tuple[dict[str, Any], Any]] = []
    for _ in range(24):
        rows = int(random.integers(1, 5))
        inputs = {
            spec.name: random.integers(0, rows, [rows, *tail]).astype(dtype)
            for spec in session.get_inputs()
        }
        try:
            answers = [session.run(["y"], inputs)[0] for _ in range(8)]
        except Exception:
            made.append((inputs, None))
            continue
        alike = all(np.array_equal(answers[0], each, equal_nan=True) for each in answers)
        made.append((inputs, answers[0] if alike else ...))
    return made


@pytest.mark.parametrize(("place", "name"), list(enumerate(MIXES)))
def test_no_graph_that_mixes_rows_is_batched(mixing: Running, place: int, name: str) -> None:
    """Answers to many callers at once are those of the runtime to each call alone."""
    model = MIXES[name]()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = _runtime_answers(session, model)
    assert decision(mixing, f"m{place}")["enabled"] is False
    with mixing.channel() as channel, ThreadPoolExecutor(8) as callers:

        def outcome(inputs: dict[str, Any]) -> Any:
            try:
                return infer(channel, f"m{place}", inputs)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.INTERNAL, error  # noqa: PT017
                return None

        answers = list(callers.map(outcome, [inputs for inputs, _ in expected]))
    for (_, alone), answer in zip(expected, answers, strict=True):
        if alone is None:
            assert answer is None
        elif alone is not ...:
            np.testing.assert_array_equal(answer.reshape(alone.shape), alone)


OIP = {
    "float32": "FP32",
    "int64": "INT64",
    "float64": "FP64",
    "float16": "FP16",
    "int32": "INT32",
    "bool": "BOOL",
}


def infer(channel: grpc.Channel, name: str, inputs: dict[str, Any]) -> Any:
    """The first output, by the Open Inference Protocol with raw tensors."""
    request = _message("inference.ModelInferRequest", model_name=name)
    for key, array in inputs.items():
        request.inputs.add(name=key, datatype=OIP[array.dtype.name], shape=array.shape)
        request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
    answer = call(
        channel,
        "/inference.GRPCInferenceService/ModelInfer",
        request,
        "inference.ModelInferResponse",
    )
    numpy = {value: key for key, value in OIP.items()}[answer.outputs[0].datatype]
    return np.frombuffer(answer.raw_output_contents[0], numpy).reshape(
        tuple(answer.outputs[0].shape)
    )


@pytest.mark.parametrize(
    ("flag", "enabled", "warning"),
    [
        ("--enable_batching", True, "it reduces over the rows"),
        ("--enable_batching=false", False, None),
    ],
)
def test_the_operator_has_the_last_word(
    tmp_path: Path, flag: str, enabled: bool, warning: str | None
) -> None:
    save(tmp_path / "1", MIXES["reduce mean"]())
    with model_server("--model_name", "m", "--model_base_path", str(tmp_path), flag) as running:
        decided = decision(running, "m")
    assert (decided["enabled"], decided["decided_by"]) == (enabled, "operator")
    assert warning is None or "differs from the same row alone" in decided["warning"]


def test_a_probe_takes_away_what_a_model_says_of_itself(tmp_path: Path) -> None:
    python_model(tmp_path / "1", "batching = True")
    flags = [
        "--model_name",
        "m",
        "--model_base_path",
        str(tmp_path),
        "--allow_models_that_run_code",
    ]
    with model_server(*flags) as running:
        decided = decision(running, "m")
    assert (decided["enabled"], decided["decided_by"]) == (False, "probe")
    assert decided["reason"] == "a row among 2 differs from the same row alone: output 'y'"


def test_parameters_of_batches_come_from_a_file(tmp_path: Path) -> None:
    python_model(tmp_path / "m" / "1")
    file = tmp_path / "batching.txt"
    file.write_text("max_batch_size { value: 4 }\nallowed_batch_sizes: 2\nallowed_batch_sizes: 4\n")
    flags = [
        "--model_name",
        "m",
        "--model_base_path",
        str(tmp_path / "m"),
        "--allow_models_that_run_code",
    ]
    flags += [
        "--enable_batching=true",
        "--batching_parameters_file",
        str(file),
        "--enable_model_warmup=false",
    ]
    with (
        model_server(*flags) as running,
        running.channel() as channel,
        ThreadPoolExecutor(16) as callers,
    ):
        _, document = ask(running, "GET", "/v2/models/m/config")
        assert document["max_batch_size"] == 4
        answers = callers.map(
            lambda _: predict(channel, predict_request("m", x=[1.0]))["most"], range(200)
        )
        assert {size for answer in answers for size in answer} <= {2, 4}


def test_inputs_of_different_numbers_of_rows_get_what_the_runtime_answers(tmp_path: Path) -> None:
    save(tmp_path / "1", model([node("Add", ["x", "k"], ["y"])], inputs=("x", "k"), shape=(2,)))
    with (
        model_server("--model_name", "m", "--model_base_path", str(tmp_path)) as running,
        running.channel() as channel,
    ):
        assert decision(running, "m")["enabled"] is True
        one, three = np.float32([[1, 2]]), np.float32([[1, 2], [3, 4], [5, 6]])
        both = [(one, three), (three, one), (three, three)] * 20
        with ThreadPoolExecutor(8) as callers:
            answers = callers.map(
                lambda pair: infer(channel, "m", {"x": pair[0], "k": pair[1]}), both
            )
            for (x, k), answer in zip(both, answers, strict=True):
                np.testing.assert_array_equal(answer, x + k)
        status, document = ask(
            running,
            "POST",
            "/v1/models/m:predict",
            {"inputs": {"x": [[1, 2]], "k": three.tolist()}},
        )
        assert (status, document) == (200, {"outputs": (one + three).tolist()})
        with pytest.raises(
            grpc.RpcError, match="differ in their number of rows \\('x' 3, 'k' 2\\), and the model"
        ):
            infer(channel, "m", {"x": three, "k": three[:2]})
        answer = predict(channel, predict_request("m", x=one, k=three))
        assert answer["y"] == (one + three).ravel().tolist()


def test_a_shape_without_values_is_zeros_as_tensorflow_reads_it(several: Running) -> None:
    request = predict_request("linear", x=[1.0, 2])
    request.inputs["x"].tensor_content = b""
    with several.channel() as channel:
        assert predict(channel, request)["y"] == [10, 10]

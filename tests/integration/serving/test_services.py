"""The other gRPC services: metadata, health, reflection, the Open Inference Protocol."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from cloud_ml.serving.protos import message
from support.serving import Running, call, model_server, save_linear

SERVING, OIP = "tensorflow.serving.", "inference."


def oip(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    request = message(f"{OIP}{method}Request")(**fields)
    return call(
        channel, f"/inference.GRPCInferenceService/{method}", request, f"{OIP}{method}Response"
    )


def infer_request(
    x: Any, *, raw: bool = True, id_: str = "", datatype: str = "FP32", **fields: Any
) -> Any:
    array = np.asarray(x, np.float32)
    request = message(OIP + "ModelInferRequest")(model_name="linear", id=id_, **fields)
    tensor = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
    if raw:
        request.raw_input_contents.append(array.tobytes())
    else:
        tensor.contents.fp32_contents.extend(array.tolist())
    return request


def infer(channel: grpc.Channel, request: Any) -> Any:
    path = "/inference.GRPCInferenceService/ModelInfer"
    return call(channel, path, request, OIP + "ModelInferResponse")


def test_metadata_tells_the_signature(linear: Running) -> None:
    request = message(SERVING + "GetModelMetadataRequest")(metadata_field=["signature_def"])
    request.model_spec.name = "linear"
    path = "/tensorflow.serving.PredictionService/GetModelMetadata"
    with linear.channel() as channel:
        response = call(channel, path, request, SERVING + "GetModelMetadataResponse")
        signatures = message(SERVING + "SignatureDefMap")()
        assert response.metadata["signature_def"].Unpack(signatures)
        signature = signatures.signature_def["serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1]
        assert (response.model_spec.version.value, signature.outputs["y"].dtype) == (1, 1)
        request.metadata_field[0] = "other"
        with pytest.raises(grpc.RpcError, match="'signature_def' and 'batching' can be asked for"):
            call(channel, path, request, SERVING + "GetModelMetadataResponse")


def test_classify_needs_a_signature_that_classifies(linear: Running) -> None:
    request = message(SERVING + "ClassificationRequest")()
    request.model_spec.name = "linear"
    request.input.example_list.examples.add().features.feature["x"].float_list.value.append(1)
    with linear.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        path = "/tensorflow.serving.PredictionService/Classify"
        call(channel, path, request, SERVING + "ClassificationResponse")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "takes (x: float32 [?])" in caught.value.details()


def test_the_open_inference_protocol_answers_as_it_was_asked(linear: Running) -> None:
    with linear.channel() as channel:
        for _ in range(2):  # the second is recognised
            raw = infer(channel, infer_request([1.0, 2.0], id_="one"))
            assert np.frombuffer(raw.raw_output_contents[0], np.float32).tolist() == [12.0, 14.0]
            assert (raw.id, raw.model_name, raw.model_version) == ("one", "linear", "1")
            assert [(each.name, each.datatype, list(each.shape)) for each in raw.outputs] == [
                ("y", "FP32", [2])
            ]
        other = infer(channel, infer_request([3.0, 4.0], id_="two"))
        assert (other.id, np.frombuffer(other.raw_output_contents[0], np.float32).tolist()) == (
            "two",
            [16.0, 18.0],
        )
        typed = infer(channel, infer_request([1.0], raw=False))
        assert list(typed.outputs[0].contents.fp32_contents) == [12.0]
        assert not typed.raw_output_contents


def test_many_rows_of_many_callers_keep_their_ids(linear: Running) -> None:
    with linear.channel() as channel:
        stub = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        calls = {
            f"{number:03}": stub.future(
                infer_request([float(number)], id_=f"{number:03}").SerializeToString()
            )
            for number in range(200)
        }
        for id_, each in calls.items():
            made = message(OIP + "ModelInferResponse").FromString(each.result(60))
            assert made.id == id_
            assert np.frombuffer(made.raw_output_contents[0], np.float32) == [int(id_) * 2 + 10]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (
            infer_request([1.0], datatype="FP64"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "float64, not float32",
        ),
        (
            infer_request([1.0], datatype="FLOAT"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "has datatype 'FLOAT'; known: FP32",
        ),
        (infer_request([[1.0]]), grpc.StatusCode.INVALID_ARGUMENT, "has shape [1, 1]"),
        (
            infer_request([1.0], model_version="x"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "model_version is 'x'",
        ),
        (
            infer_request([1.0], model_version="9"),
            grpc.StatusCode.NOT_FOUND,
            "version 9 of model 'linear'",
        ),
        (
            infer_request([1.0], raw_input_contents=[b""]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "2 entries for 1 inputs",
        ),
        (
            infer_request(
                [1.0], parameters={"sequence_id": message(OIP + "InferParameter")(int64_param=3)}
            ),
            grpc.StatusCode.UNIMPLEMENTED,
            "parameter 'sequence_id' of the request is not offered",
        ),
    ],
)
def test_a_wrong_inference_is_told_what_is_wrong(
    linear: Running, request_: Any, code: grpc.StatusCode, words: str
) -> None:
    with linear.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        infer(channel, request_)
    assert caught.value.code() is code
    assert words in caught.value.details()


def test_what_the_open_inference_protocol_tells_of_server_and_models(linear: Running) -> None:
    with linear.channel() as channel:
        assert oip(channel, "ServerLive").live
        assert oip(channel, "ServerReady").ready
        assert oip(channel, "ModelReady", name="linear", version="1").ready
        assert not oip(channel, "ModelReady", name="linear", version="2").ready
        assert oip(channel, "ServerMetadata").name == "cloudml-serve"
        metadata = oip(channel, "ModelMetadata", name="linear")
        assert (metadata.platform, list(metadata.versions), list(metadata.inputs[0].shape)) == (
            "onnxruntime_onnx",
            ["1"],
            [-1],
        )
        index = oip(channel, "RepositoryIndex")
        assert [(each.name, each.version, each.state) for each in index.models] == [
            ("linear", "1", "READY")
        ]
        with pytest.raises(grpc.RpcError, match="--allow_model_control"):
            oip(channel, "RepositoryModelUnload", model_name="linear")


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("controlled")
    save_linear(base / "1")
    flags = ("--model_name", "linear", "--model_base_path", str(base), "--allow_model_control")
    with model_server(*flags) as running:
        yield running


def test_health_is_watched_while_a_model_is_unloaded_and_loaded(controlled: Running) -> None:
    health = "grpc.health.v1.Health"
    request_class, response_class = (
        message("grpc.health.v1.HealthCheckRequest"),
        message("grpc.health.v1.HealthCheckResponse"),
    )
    with controlled.channel() as channel:
        watch = channel.unary_stream(f"/{health}/Watch")(
            request_class().SerializeToString(), timeout=30
        )
        news = (response_class.FromString(each).status for each in watch)
        assert next(news) == 1
        oip(channel, "RepositoryModelUnload", model_name="linear")
        assert not oip(channel, "ModelReady", name="linear").ready
        with pytest.raises(grpc.RpcError, match="it was unloaded"):
            infer(channel, infer_request([1.0]))
        oip(channel, "RepositoryModelLoad", model_name="linear")
        assert infer(channel, infer_request([1.0])).model_version == "1"
        assert (
            call(
                channel,
                f"/{health}/Check",
                request_class(service=health),
                "grpc.health.v1.HealthCheckResponse",
            ).status
            == 1
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(
                channel,
                f"/{health}/Check",
                request_class(service="none"),
                "grpc.health.v1.HealthCheckResponse",
            )
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        unknown = channel.unary_stream(f"/{health}/Watch")(
            request_class(service="none").SerializeToString(), timeout=30
        )
        assert response_class.FromString(next(unknown)).status == 3
        with pytest.raises(
            grpc.RpcError, match="no model 'other' is configured; configured: linear"
        ):
            oip(channel, "RepositoryModelLoad", model_name="other")


def test_watchers_do_not_hold_up_the_end(controlled: Running) -> None:
    """Whoever watches health would do so forever: the next test module starts only if the server
    ends in time.
    """
    with controlled.channel() as channel:
        request = message("grpc.health.v1.HealthCheckRequest")().SerializeToString()
        assert next(channel.unary_stream("/grpc.health.v1.Health/Watch")(request))


@pytest.mark.parametrize("generation", ["v1", "v1alpha"])
def test_reflection_is_enough_to_call_what_it_shows(linear: Running, generation: str) -> None:
    package = f"grpc.reflection.{generation}"
    ask = message(f"{package}.ServerReflectionRequest")
    questions = [
        ask(list_services=""),
        ask(file_containing_symbol="inference.GRPCInferenceService"),
        ask(file_by_filename="x"),
    ]
    with linear.channel() as channel:
        talk = channel.stream_stream(f"/{package}.ServerReflection/ServerReflectionInfo")
        answers = [
            message(f"{package}.ServerReflectionResponse").FromString(each)
            for each in talk(iter([each.SerializeToString() for each in questions]), timeout=60)
        ]
    services = [each.name for each in answers[0].list_services_response.service]
    assert "tensorflow.serving.PredictionService" in services
    assert f"{package}.ServerReflection" in services
    pool = descriptor_pool.DescriptorPool()
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(each)
        for each in answers[1].file_descriptor_response.file_descriptor_proto
    ]
    for file in reversed(files):
        pool.Add(file)
    assert "ModelInfer" in pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name
    assert answers[2].error_response.error_code == 5


def reflected(channel: grpc.Channel, questions: list[Any]) -> list[Any]:
    """Answers of reflection, in the order of the questions."""
    talk = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    answers = talk(iter([each.SerializeToString() for each in questions]), timeout=60)
    return [
        message("grpc.reflection.v1.ServerReflectionResponse").FromString(each) for each in answers
    ]


def symbols(files: list[descriptor_pb2.FileDescriptorProto]) -> set[str]:
    """Every name that a tool may ask for: services, methods, messages, fields, enums and their
    values.
    """
    names: set[str] = set()
    for file in files:
        for service in file.service:
            names |= {f"{file.package}.{service.name}"}
            names |= {f"{file.package}.{service.name}.{method.name}" for method in service.method}
        scopes: list[tuple[str, Any, Any]] = [(file.package, file.message_type, file.enum_type)]
        while scopes:
            scope, messages, enums = scopes.pop()
            for enum in enums:
                names |= {f"{scope}.{enum.name}"}
                for value in enum.value:
                    names |= {f"{scope}.{enum.name}.{value.name}", f"{scope}.{value.name}"}
            for each in messages:
                names |= {f"{scope}.{each.name}"} | {
                    f"{scope}.{each.name}.{field.name}" for field in each.field
                }
                scopes.append((f"{scope}.{each.name}", each.nested_type, each.enum_type))
    return names


def test_reflection_finds_every_service_method_message_field_and_enum_value(
    linear: Running,
) -> None:
    ask = message("grpc.reflection.v1.ServerReflectionRequest")
    with linear.channel() as channel:
        services = [
            each.name
            for each in reflected(channel, [ask(list_services="")])[
                0
            ].list_services_response.service
        ]
        found = reflected(channel, [ask(file_containing_symbol=each) for each in services])
        files = {
            each
            for answer in found
            for each in answer.file_descriptor_response.file_descriptor_proto
        }
        names = sorted(
            symbols([descriptor_pb2.FileDescriptorProto.FromString(each) for each in files])
        )
        assert {
            "inference.GRPCInferenceService.ModelConfig",
            "tensorflow.DataType.DT_FLOAT",
        } <= set(names)
        answers = reflected(channel, [ask(file_containing_symbol=name) for name in names])
        unknown = [
            name
            for name, answer in zip(names, answers, strict=True)
            if answer.HasField("error_response")
        ]
        assert unknown == []
        for name in (
            "inference.GRPCInferenceService.None",
            "tensorflow.DataType.NONE",
            "",
            "inference",
        ):
            assert (
                reflected(channel, [ask(file_containing_symbol=name)])[0].error_response.error_code
                == 5
            ), name


def test_triton_reads_the_configuration(linear: Running) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{linear.port}") as client:
        config = client.get_model_config("linear", "1").config
        assert (config.name, config.platform, config.max_batch_size) == (
            "linear",
            "onnxruntime_onnx",
            1024,
        )
        assert [(each.name, each.data_type, list(each.dims)) for each in config.input] == [
            ("x", 11, [])
        ]
        assert [(each.name, each.data_type, list(each.dims)) for each in config.output] == [
            ("y", 11, []),
            ("output", 11, []),
        ]
        with pytest.raises(InferenceServerException, match="no model 'other'"):
            client.get_model_config("other")
    with triton_http.InferenceServerClient(f"127.0.0.1:{linear.port}") as client:
        assert client.get_model_config("linear", "1") == {
            "name": "linear",
            "platform": "onnxruntime_onnx",
            "backend": "cloud-ml",
            "max_batch_size": 1024,
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": []}],
            "output": [
                {"name": name, "data_type": "TYPE_FP32", "dims": []} for name in ("y", "output")
            ],
        }


def test_triton_reads_statistics_of_what_was_asked(tmp_path: Path) -> None:
    """Counts, and durations that fit each other, over both protocols."""
    for version in ("1", "2"):
        save_linear(tmp_path / "linear" / version)
    every = f'name: "linear" base_path: "{tmp_path}/linear" model_version_policy {{ all {{}} }}'
    (tmp_path / "models").write_text(f"model_config_list {{ config {{ {every} }} }}")
    address = "127.0.0.1:{}"
    with model_server("--model_config_file", str(tmp_path / "models")) as running:
        rest = triton_http.InferenceServerClient(address.format(running.port))
        rpc = triton_grpc.InferenceServerClient(address.format(running.port))
        with rest, rpc, running.channel() as channel:
            before = rest.get_inference_statistics("linear", "2")["model_stats"][0]
            begun = time.time() * 1000
            for rows in (1, 3, 3):
                infer(channel, infer_request([1.0] * rows))
            statistics = rest.get_inference_statistics("linear", "2")["model_stats"]
            assert len(statistics) == 1
            after = statistics[0]
            assert (after["name"], after["version"]) == ("linear", "2")
            assert after["inference_count"] - before["inference_count"] == 7
            assert after["execution_count"] - before["execution_count"] == 3
            assert begun - 1000 < after["last_inference"] <= time.time() * 1000 + 1000
            stats = after["inference_stats"]
            assert stats["success"]["count"] - before["inference_stats"]["success"]["count"] == 3
            assert stats["fail"] == {"count": 0, "ns": 0}
            parts = sum(
                stats[part]["ns"]
                for part in ("queue", "compute_input", "compute_infer", "compute_output")
            )
            assert 0 < stats["compute_infer"]["ns"] < parts <= stats["success"]["ns"] + 4
            runs = {
                each["batch_size"]: each["compute_infer"]["count"] for each in after["batch_stats"]
            }
            assert runs[3] == 2
            assert sum(runs.values()) == after["execution_count"]

            same = rpc.get_inference_statistics("linear", "2", as_json=True)["model_stats"][0]
            assert same["inference_count"] == str(after["inference_count"])
            assert same["inference_stats"]["success"] == {
                "count": str(stats["success"]["count"]), "ns": str(stats["success"]["ns"]),
            }  # fmt: skip
            listed = rest.get_inference_statistics()["model_stats"]
            assert [(each["name"], each["version"]) for each in listed] == [
                ("linear", "1"),
                ("linear", "2"),
            ]
            assert len(rpc.get_inference_statistics().model_stats) == 2
            assert len(rpc.get_inference_statistics("linear").model_stats) == 2
            for client in (rest, rpc):
                with pytest.raises(InferenceServerException, match="no model 'other'"):
                    client.get_inference_statistics("other")
                with pytest.raises(InferenceServerException, match="version 9 of model 'linear'"):
                    client.get_inference_statistics("linear", "9")


def mlserver(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    package = "inference.model_repository"
    request = message(f"{package}.{method}Request")(**fields)
    return call(
        channel,
        f"/{package}.ModelRepositoryService/{method}",
        request,
        f"{package}.{method}Response",
    )


def test_mlservers_repository_lists_and_changes_models_where_callers_may(
    linear: Running, controlled: Running
) -> None:
    with linear.channel() as channel:
        (listed,) = mlserver(channel, "RepositoryIndex").models
        assert (listed.name, listed.version, listed.state) == ("linear", "1", "READY")
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            with pytest.raises(grpc.RpcError, match="--allow_model_control") as caught:
                mlserver(channel, method, model_name="linear")
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.RpcError, match="there is no repository 'x'"):
            mlserver(channel, "RepositoryIndex", repository_name="x")
    with controlled.channel() as channel:
        mlserver(channel, "RepositoryModelUnload", model_name="linear")
        assert not oip(channel, "ModelReady", name="linear").ready
        assert not mlserver(channel, "RepositoryIndex", ready=True).models
        mlserver(channel, "RepositoryModelLoad", model_name="linear")
        assert oip(channel, "ModelReady", name="linear").ready


class Stream:
    """Calls of ``ModelStreamInfer`` by tritonclient."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self._heard: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._client = triton_grpc.InferenceServerClient(f"127.0.0.1:{port}")
        self._client.start_stream(
            lambda result, error: self._heard.put((result, error)), headers=headers
        )

    def ask(self, x: Any, model: str = "linear", id_: str = "") -> None:
        array = np.asarray(x, np.float32)
        tensor = triton_grpc.InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        self._client.async_stream_infer(model, [tensor], request_id=id_)

    def next(self) -> tuple[Any, Any]:
        return self._heard.get(timeout=60)

    def close(self) -> None:
        self._client.close()


def test_triton_infers_on_a_stream(linear: Running) -> None:
    with contextlib.closing(Stream(linear.port)) as stream:
        large = np.arange(1_000_000, dtype=np.float32)
        for number in range(100):
            stream.ask([number, number + 1], id_=str(number))
        stream.ask([[1.0]], id_="shape")
        stream.ask([1.0], "other", id_="model")
        for _ in range(3):
            stream.ask(large, id_="large")
        for number in range(100):
            answer, error = stream.next()
            assert error is None
            assert answer.get_response().id == str(number)
            assert answer.as_numpy("y").tolist() == [number * 2 + 10, number * 2 + 12]
        assert "input 'x' has shape [1, 1]" in str(stream.next()[1])
        assert "no model 'other'" in str(stream.next()[1])
        for _ in range(3):
            np.testing.assert_array_equal(stream.next()[0].as_numpy("y"), large * 2 + 10)
        stream.ask([5.0])
        assert stream.next()[0].as_numpy("y").tolist() == [20.0]


def test_a_stream_ends_in_order_when_its_caller_has_asked_everything(linear: Running) -> None:
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    with linear.channel() as channel:
        words: queue.SimpleQueue[Any] = queue.SimpleQueue()
        answers = channel.stream_stream(path)(iter(words.get, None), timeout=60)
        words.put(infer_request([1.0], id_="a").SerializeToString())
        made = message(OIP + "ModelStreamInferResponse").FromString(next(answers))
        assert (made.error_message, made.infer_response.id) == ("", "a")
        words.put(None)
        assert list(answers) == []
        assert answers.code() is grpc.StatusCode.OK

"""The other gRPC services: metadata, health, reflection, the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from cloud_ml.serving.protos import message
from support.serving import Running, call, model_server, save_linear

SERVING, OIP = "tensorflow.serving.", "inference."


def oip(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    request = message(f"{OIP}{method}Request")(**fields)
    return call(channel, f"/inference.GRPCInferenceService/{method}", request, f"{OIP}{method}Response")


def infer_request(x: Any, *, raw: bool = True, id_: str = "", datatype: str = "FP32", **fields: Any) -> Any:
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
    asked = message(SERVING + "GetModelMetadataRequest")(metadata_field=["signature_def"])
    asked.model_spec.name = "linear"
    path = "/tensorflow.serving.PredictionService/GetModelMetadata"
    with linear.channel() as channel:
        told = call(channel, path, asked, SERVING + "GetModelMetadataResponse")
        signatures = message(SERVING + "SignatureDefMap")()
        assert told.metadata["signature_def"].Unpack(signatures)
        signature = signatures.signature_def["serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1]
        assert (told.model_spec.version.value, signature.outputs["y"].dtype) == (1, 1)
        asked.metadata_field[0] = "other"
        with pytest.raises(grpc.RpcError, match="'signature_def' can be asked for"):
            call(channel, path, asked, SERVING + "GetModelMetadataResponse")


def test_classify_needs_a_signature_that_classifies(linear: Running) -> None:
    asked = message(SERVING + "ClassificationRequest")()
    asked.model_spec.name = "linear"
    asked.input.example_list.examples.add().features.feature["x"].float_list.value.append(1)
    with linear.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        path = "/tensorflow.serving.PredictionService/Classify"
        call(channel, path, asked, SERVING + "ClassificationResponse")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "takes (x: float32 [?])" in caught.value.details()


def test_the_open_inference_protocol_answers_as_it_was_asked(linear: Running) -> None:
    with linear.channel() as channel:
        for _ in range(2):  # the second is recognised
            raw = infer(channel, infer_request([1.0, 2.0], id_="one"))
            assert np.frombuffer(raw.raw_output_contents[0], np.float32).tolist() == [12.0, 14.0]
            assert (raw.id, raw.model_name, raw.model_version) == ("one", "linear", "1")
            assert [(each.name, each.datatype, list(each.shape)) for each in raw.outputs] == [("y", "FP32", [2])]
        other = infer(channel, infer_request([3.0, 4.0], id_="two"))
        assert (other.id, np.frombuffer(other.raw_output_contents[0], np.float32).tolist()) == ("two", [16.0, 18.0])
        typed = infer(channel, infer_request([1.0], raw=False))
        assert list(typed.outputs[0].contents.fp32_contents) == [12.0]
        assert not typed.raw_output_contents


def test_many_rows_of_many_callers_keep_their_ids(linear: Running) -> None:
    with linear.channel() as channel:
        stub = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        calls = {
            f"{number:03}": stub.future(infer_request([float(number)], id_=f"{number:03}").SerializeToString())
            for number in range(200)
        }
        for id_, each in calls.items():
            made = message(OIP + "ModelInferResponse").FromString(each.result(20))
            assert made.id == id_
            assert np.frombuffer(made.raw_output_contents[0], np.float32) == [int(id_) * 2 + 10]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (infer_request([1.0], datatype="FP64"), grpc.StatusCode.INVALID_ARGUMENT, "float64, not float32"),
        (infer_request([1.0], datatype="FLOAT"), grpc.StatusCode.INVALID_ARGUMENT, "has datatype 'FLOAT'; known: FP32"),
        (infer_request([[1.0]]), grpc.StatusCode.INVALID_ARGUMENT, "has shape [1, 1]"),
        (infer_request([1.0], model_version="x"), grpc.StatusCode.INVALID_ARGUMENT, "model_version is 'x'"),
        (infer_request([1.0], model_version="9"), grpc.StatusCode.NOT_FOUND, "version 9 of model 'linear'"),
        (infer_request([1.0], raw_input_contents=[b""]), grpc.StatusCode.INVALID_ARGUMENT, "2 entries for 1 inputs"),
        (
            infer_request([1.0], parameters={"sequence_id": message(OIP + "InferParameter")(int64_param=3)}),
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
        told = oip(channel, "ModelMetadata", name="linear")
        assert (told.platform, list(told.versions), list(told.inputs[0].shape)) == ("onnxruntime_onnx", ["1"], [-1])
        index = oip(channel, "RepositoryIndex")
        assert [(each.name, each.version, each.state) for each in index.models] == [("linear", "1", "READY")]
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
    asked, told = message("grpc.health.v1.HealthCheckRequest"), message("grpc.health.v1.HealthCheckResponse")
    with controlled.channel() as channel:
        watch = channel.unary_stream(f"/{health}/Watch")(asked().SerializeToString(), timeout=30)
        news = (told.FromString(each).status for each in watch)
        assert next(news) == 1
        oip(channel, "RepositoryModelUnload", model_name="linear")
        assert not oip(channel, "ModelReady", name="linear").ready
        with pytest.raises(grpc.RpcError, match="it was unloaded"):
            infer(channel, infer_request([1.0]))
        oip(channel, "RepositoryModelLoad", model_name="linear")
        assert infer(channel, infer_request([1.0])).model_version == "1"
        assert (
            call(channel, f"/{health}/Check", asked(service=health), "grpc.health.v1.HealthCheckResponse").status == 1
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, f"/{health}/Check", asked(service="none"), "grpc.health.v1.HealthCheckResponse")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        unknown = channel.unary_stream(f"/{health}/Watch")(asked(service="none").SerializeToString(), timeout=30)
        assert told.FromString(next(unknown)).status == 3
        with pytest.raises(grpc.RpcError, match="no model 'other' is configured; configured: linear"):
            oip(channel, "RepositoryModelLoad", model_name="other")


def test_watchers_do_not_hold_up_the_end(controlled: Running) -> None:
    """Whoever watches health would do so forever: the next test module starts only if the server ends in time."""
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
            for each in talk(iter([each.SerializeToString() for each in questions]), timeout=20)
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

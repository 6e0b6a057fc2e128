"""Predict over gRPC, as a client that nobody here wrote speaks it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from support.serving import (
    PREDICT,
    Running,
    call,
    model_server,
    predict,
    predict_request,
    save_linear,
)


def refused(channel: grpc.Channel, request: object, **options: object) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        predict(channel, request, **options)
    return caught.value


def test_a_prediction_tells_who_made_it(linear: Running) -> None:
    with linear.channel() as channel:
        answer = call(
            channel, PREDICT, predict_request(x=[3.0]), "tensorflow.serving.PredictResponse"
        )
    assert list(answer.outputs["y"].float_val) == [16.0]
    assert [dim.size for dim in answer.outputs["y"].tensor_shape.dim] == [1]
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("linear", 1)


def test_each_of_many_callers_gets_its_own_rows(linear: Running) -> None:
    with linear.channel() as channel, ThreadPoolExecutor(16) as callers:
        sizes = np.random.default_rng(7).integers(1, 9, 300)
        inputs = [np.arange(size, dtype=np.float32) + number for number, size in enumerate(sizes)]
        answers = list(callers.map(lambda x: predict(channel, predict_request(x=x))["y"], inputs))
    for x, answer in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(answer, 2 * x + 10)


def test_a_message_of_many_frames_comes_and_goes_whole(linear: Running) -> None:
    x = np.arange(3_000_000, dtype=np.float32)
    with linear.channel(**{"grpc.max_receive_message_length": -1}) as channel:
        np.testing.assert_allclose(predict(channel, predict_request(x=x))["y"], 2 * x + 10)


@pytest.mark.parametrize("way", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_read(linear: Running, way: grpc.Compression) -> None:
    with linear.channel() as channel:
        answer = predict(channel, predict_request(x=np.ones(5000)), compression=way)
    assert answer["y"] == [12.0] * 5000


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (predict_request("other", x=[1.0]), grpc.StatusCode.NOT_FOUND, "no model 'other'"),
        (predict_request("", x=[1.0]), grpc.StatusCode.INVALID_ARGUMENT, "names no model"),
        (
            predict_request(x=[1.0], signature="none"),
            grpc.StatusCode.NOT_FOUND,
            "it has serving_default",
        ),
        (
            predict_request(z=[1.0]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "input 'x' is missing; there is no input 'z'",
        ),
        (predict_request(x=[[1.0]]), grpc.StatusCode.INVALID_ARGUMENT, "shape [1, 1]: signature"),
        (
            predict_request(x=[1.0], outputs=["z"]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "no output 'z'",
        ),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    linear: Running, request_: object, code: grpc.StatusCode, words: str
) -> None:
    with linear.channel() as channel:
        error = refused(channel, request_)
    assert error.code() is code
    assert words in error.details()


def test_no_row_is_an_answer_without_rows(linear: Running) -> None:
    with linear.channel() as channel:
        assert predict(channel, predict_request(x=[]))["y"] == []


def test_what_is_no_message_and_no_method_is_refused(linear: Running) -> None:
    with linear.channel() as channel:
        for method, code in (
            (PREDICT, grpc.StatusCode.INVALID_ARGUMENT),
            ("/a/b", grpc.StatusCode.UNIMPLEMENTED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method)(b"\xff" * 20, timeout=60)
            assert caught.value.code() is code


def test_who_gives_up_harms_nobody(linear: Running) -> None:
    with linear.channel() as channel:
        stub = channel.unary_unary(PREDICT)
        data = predict_request(x=[1.0]).SerializeToString()
        for _ in range(50):
            stub.future(data).cancel()
        assert predict(channel, predict_request(x=[1.0]))["y"] == [12.0]


PATIENT = """#!{python}
import runpy, sys
from cloud_ml.net import listening

drain = listening.Alive.drain
listening.Alive.drain = lambda connections, seconds: drain(connections, 600.0)
del sys.argv[1:3]
runpy.run_module("cloud_ml.serving", run_name="__main__")
"""


def test_it_leaves_at_once_when_nobody_waits(tmp_path: Path) -> None:
    """Connections that idle do not hold it up for the time that answers under way get: here ten
    minutes.
    """
    save_linear(tmp_path / "1")
    program = tmp_path / "python"
    program.write_text(PATIENT.format(python=sys.executable))
    program.chmod(0o755)
    with (
        model_server(
            "--model_name", "linear", "--model_base_path", str(tmp_path), python=program
        ) as running,
        running.channel() as open_,
    ):
        predict(open_, predict_request(x=[1.0]))
        running.process.terminate()
        assert running.process.wait(60) == 0

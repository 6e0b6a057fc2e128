"""TensorFlow Serving's REST over real connections."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.serving import Running, call, model_server, predict, predict_request, save_linear

PREDICT = "/v1/models/linear:predict"
SIGNATURE = "signature 'serving_default' takes (x: float32 [?]) and gives (y: float32 [?])"


def ask(
    running: Running, method: str, path: str, body: Any = None, **fields: str
) -> tuple[int, Any]:
    """Status and document of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(
            method, path, data, {key.replace("_", "-"): value for key, value in fields.items()}
        )
        answer = connection.getresponse()
        assert answer.headers["Date"]
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


@pytest.mark.parametrize("place", ["", "/versions/1", "/VERSIONS/1"])
def test_rows_and_columns(linear: Running, place: str) -> None:
    path = f"/v1/models/linear{place}:predict"
    assert ask(linear, "POST", path, {"instances": [1.0, 2, 5]}) == (
        200,
        {"predictions": [12.0, 14.0, 20.0]},
    )
    assert ask(linear, "POST", path, {"inputs": [1.0, 2]}) == (200, {"outputs": [12.0, 14.0]})
    assert ask(linear, "POST", path, {"inputs": {"x": [1.0]}}) == (200, {"outputs": [12.0]})
    assert ask(linear, "POST", path, {"instances": [{"x": 1.0}, {"x": 2.0}]}) == (
        200,
        {"predictions": [12.0, 14.0]},
    )
    assert ask(linear, "POST", path, {"signature_name": "serving_default", "inputs": []}) == (
        200,
        {"outputs": []},
    )


def test_numbers_that_json_does_not_have(linear: Running) -> None:
    status, document = ask(
        linear, "POST", PREDICT, b'{"instances": [NaN, Infinity, -Infinity, 1e39]}'
    )
    assert (status, str(document["predictions"])) == (200, "[nan, inf, -inf, inf]")


def test_many_numbers(linear: Running) -> None:
    x = np.random.default_rng(2).standard_normal(50_000).round(4)
    status, document = ask(linear, "POST", PREDICT, {"instances": x.tolist()})
    assert status == 200
    np.testing.assert_allclose(
        document["predictions"], np.float32(2) * x.astype(np.float32) + 10, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (PREDICT, b"", 400, "not valid JSON"),
        (PREDICT, b"[]", 400, "not a JSON object"),
        (PREDICT, {}, 400, "neither or both"),
        (PREDICT, {"instances": [1], "inputs": [1]}, 400, "neither or both"),
        (PREDICT, {"instances": []}, 400, "not a list of one row or more"),
        (PREDICT, {"instances": 1}, 400, "not a list of one row or more"),
        (PREDICT, {"instances": [1], "signature_name": 3}, 400, "'signature_name' is no string"),
        (
            PREDICT,
            {"instances": [1], "signature_name": "other"},
            400,
            "no signature 'other'; it has serving_default",
        ),
        (
            PREDICT,
            {"instances": [[1], [2, 3]]},
            400,
            "instances[1] has shape [2], instances[0] has shape [1]",
        ),
        (PREDICT, {"instances": [[1]]}, 400, f"input 'x' has shape [1, 1]: {SIGNATURE}"),
        (
            PREDICT,
            {"instances": ["a"]},
            400,
            f"instances has a string \"a\", and 'x' takes float32: {SIGNATURE}",
        ),
        (
            PREDICT,
            {"instances": [1, {"age": None, "on": True}]},
            400,
            'instances has an object {"age": null, "on": true}, and \'x\' takes float32',
        ),
        (PREDICT, {"instances": [{"x": 1}, 2]}, 400, "instances[1] is not an object"),
        (
            PREDICT,
            {"instances": [{"x": 1}, {"z": 2}]},
            400,
            "instances[1]: input 'x' is missing; there is no input 'z'",
        ),
        (PREDICT, {"inputs": {"z": [1]}}, 400, "input 'x' is missing"),
        (PREDICT, {"inputs": {"X": [1]}}, 400, "there is no input 'X' (did you mean 'x'?)"),
        (PREDICT, {"inputs": 1}, 400, f"input 'x' has shape []: {SIGNATURE}"),
        (PREDICT, b'{"instances": [1], "instances": [2]}', 400, "'instances' twice"),
        (PREDICT, b'{"instances": [{"x": 1, "x": 2}]}', 400, "'x' twice"),
        (PREDICT, b'{"inputs": {"x": [1], "x": [2]}}', 400, "'x' twice"),
        ("/v1/models/other:predict", {"instances": [1]}, 404, "no model 'other'"),
        (
            "/v1/models/linear/versions/7:predict",
            {"instances": [1]},
            404,
            "version 7 of model 'linear'",
        ),
        ("/v1/models/linear/labels/stable:predict", {"instances": [1]}, 404, "no label 'stable'"),
        ("/v1/models/%ff:predict", {"instances": [1]}, 400, "not text"),
        ("/v1/models/linear:guess", {"instances": [1]}, 400, "Malformed request: POST"),
        ("/v1/models/linear", {"instances": [1]}, 400, "Malformed request: POST"),
        ("/elsewhere", {}, 404, "nothing at /elsewhere"),
    ],
)
def test_what_is_wrong_is_told(
    linear: Running, path: str, body: Any, status: int, words: str
) -> None:
    answer = ask(linear, "POST", path, body)
    assert answer[0] == status
    assert list(answer[1]) == ["error"]
    assert words in answer[1]["error"]


def test_status_and_metadata(linear: Running) -> None:
    ok = {"error_code": "OK", "error_message": ""}
    available = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": ok}]}
    for path in ("/v1/models/linear", "/v1/models/linear/versions/1"):
        assert ask(linear, "GET", path) == (200, available)
    assert ask(linear, "HEAD", "/v1/models/linear") == (200, None)
    assert ask(linear, "GET", "/v1/models/other")[0] == 404
    assert ask(linear, "GET", "/v1/models/linear/versions/2")[0] == 404
    assert ask(linear, "GET", PREDICT)[0] == 400
    assert ask(linear, "PUT", PREDICT)[0] == 405
    status, document = ask(linear, "GET", "/v1/models/linear/metadata")
    assert (status, document["model_spec"]) == (
        200,
        {"name": "linear", "signature_name": "", "version": "1"},
    )
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    signature = document["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"] == {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x"}
    assert signature["method_name"] == "tensorflow/serving/predict"


def test_each_of_many_callers_gets_its_own_rows(linear: Running) -> None:
    def one(number: int) -> bool:
        x = [float(number)] * (number % 7 + 1)
        return ask(linear, "POST", PREDICT, {"instances": x}) == (
            200,
            {"predictions": [2 * each + 10 for each in x]},
        )

    with ThreadPoolExecutor(16) as callers:
        assert all(callers.map(one, range(300)))


def test_grpc_and_rest_meet_in_one_batch(linear: Running) -> None:
    with linear.channel() as channel, ThreadPoolExecutor(8) as callers:
        rest = callers.map(
            lambda n: ask(linear, "POST", PREDICT, {"inputs": [n]})[1]["outputs"], range(100)
        )
        grpc_ = callers.map(lambda n: predict(channel, predict_request(x=[n]))["y"], range(100))
        assert list(rest) == list(grpc_) == [[2.0 * n + 10] for n in range(100)]


def test_packed_both_ways(linear: Running) -> None:
    body = gzip.compress(json.dumps({"inputs": [1.0] * 10_000}).encode())
    connection = http.client.HTTPConnection("127.0.0.1", linear.port, timeout=60)
    connection.request(
        "POST", PREDICT, body, {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    )
    answer = connection.getresponse()
    assert answer.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.read())) == {"outputs": [12.0] * 10_000}
    connection.close()


@pytest.fixture
def raw(linear: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", linear.port), 20) as connection:
        yield connection


def test_one_connection_many_requests_at_once(raw: socket.socket) -> None:
    body = b'{"instances": [%d]}'
    head = b"POST /v1/models/linear:predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    bodies = [body % number for number in range(500)]
    sender = threading.Thread(
        target=raw.sendall, args=(b"".join(head % len(each) + each for each in bodies),)
    )
    sender.start()
    stream = raw.makefile("rb")
    for number in range(500):
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
        fields = dict(line.split(b": ") for line in iter(stream.readline, b"\r\n"))
        assert json.loads(stream.read(int(fields[b"Content-Length"]))) == {
            "predictions": [2.0 * number + 10]
        }
    sender.join()


def test_chunks_after_they_were_asked_for(raw: socket.socket) -> None:
    raw.sendall(
        b"POST /v1/models/linear:predict HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    raw.sendall(b'a\r\n{"inputs":\r\n4\r\n[1]}\r\n0\r\n\r\n')
    assert raw.makefile("rb").read().endswith(b'{"outputs":[12.0]}')


def test_a_request_hidden_in_another_is_not_run(raw: socket.socket) -> None:
    raw.sendall(
        b"POST /v1/models/linear:predict HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /v1/models/linear HTTP/1.1\r\nHost: h\r\n\r\n"
    )
    response = raw.makefile("rb").read()
    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.count(b"HTTP/1.1") == 1


def test_a_second_port_speaks_everything_too(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    flags = ("--model_name", "linear", "--model_base_path", str(tmp_path), "--rest_api_port", "0")
    with model_server(*flags) as running:
        other = Running(running.process, running.ports[1])
        for each in (running, other):
            assert ask(each, "POST", PREDICT, {"inputs": [1]}) == (200, {"outputs": [12.0]})
            with each.channel() as channel:
                assert (
                    call(
                        channel,
                        "/tensorflow.serving.PredictionService/Predict",
                        predict_request(x=[1.0]),
                        "tensorflow.serving.PredictResponse",
                    )
                    .outputs["y"]
                    .float_val[0]
                    == 12.0
                )

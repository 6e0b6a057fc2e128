"""A model is asked with arrays as with lists: NumPy's, and whatever NumPy can read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.inference import by_name
from cloud_ml.sdk.models.tensors import predict_request


class Frame:
    """As a data frame or a tensor of another library."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = rows

    def __array__(self) -> Any:
        return np.array(self.rows)


class OnDevice:
    """As a tensor of PyTorch on a GPU: it has to be copied."""

    def __array__(self) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def tolist(self) -> list[list[float]]:
        return [[1.0, 2.0]]


class Model(BaseHTTPRequestHandler):
    bodies: list[Any]

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        answer = b'{"predictions": [1.0]}'
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[tuple[str, list[Any]]]:
    bodies: list[Any] = []
    httpd = HTTPServer(("127.0.0.1", 0), type("OneModel", (Model,), {"bodies": bodies}))
    thread = threading.Thread(target=lambda: httpd.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield f"127.0.0.1:{httpd.server_port}", bodies
    httpd.shutdown()
    thread.join()
    httpd.server_close()


ROWS = [[1.0, 2.0]]
SAME = [
    np.array(ROWS),
    np.array(ROWS, np.float32),
    np.array(ROWS, ">f8"),
    np.array([[1.0], [2.0]]).T,
    Frame(ROWS),
    OnDevice(),
    [np.array([1, 2])],
    ((1.0, 2.0),),
    [[np.float32(1), np.int64(2)]],
]


@pytest.mark.parametrize("value", SAME, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_an_array_over_grpc_is_the_list(value: Any, kind: str) -> None:
    assert predict_request("m", {"x": value}, {"x": kind}) == predict_request(
        "m", {"x": ROWS}, {"x": kind}
    )


def test_scalars_text_and_bytes_over_grpc() -> None:
    for value, plain, kind in (
        (np.float32(1), 1.0, "float32"), (np.bool_(1), True, "bool"), (np.array([3], np.int8), [3], "int64"),
        (np.array(["a"]), ["a"], "string"), ([b"a"], [{"b64": "YQ=="}], "string"),
    ):  # fmt: skip
        assert predict_request("m", {"x": value}, {"x": kind}) == predict_request(
            "m", {"x": plain}, {"x": kind}
        )


def test_an_array_without_a_type_keeps_its_own() -> None:
    assert predict_request("m", {"x": np.array([1], np.int16)}, {}) == predict_request(
        "m", {"x": [1]}, {"x": "int16"}
    )


def test_values_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="x does not fit its type, int64"):
        predict_request("m", {"x": np.array([1.5])}, {"x": "int64"})
    with pytest.raises(InvalidRequest, match="x does not fit its type, int8"):
        predict_request("m", {"x": np.array([300])}, {"x": "int8"})
    with pytest.raises(InvalidRequest, match="rows are asked over HTTP only"):
        by_name(np.array(ROWS))


def test_arrays_over_http(model: tuple[str, list[Any]]) -> None:
    address, bodies = model
    with CloudMlClient("key", "secret", "http://127.0.0.1:1") as client:
        ask = client.predictions(address, "m").over_http
        for value in SAME:
            assert ask({"x": value}, signature="s") == [1.0]
            assert bodies.pop() == {"inputs": {"x": ROWS}, "signature_name": "s"}
        ask(np.array(ROWS))
        ask([{"x": np.array([1.0])}, {"x": np.float32(2), "b": b"a"}])
        assert bodies == [
            {"instances": ROWS},
            {"instances": [{"x": [1.0]}, {"x": 2.0, "b": {"b64": "YQ=="}}]},
        ]
        with pytest.raises(InvalidRequest, match="a value of type object"):
            ask({"x": [object()]})

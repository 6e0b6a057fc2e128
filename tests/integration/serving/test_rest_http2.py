"""REST over HTTP/2, with prior knowledge: what HTTP/1.1 answers, on streams."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from integration.serving.test_rest import PREDICT, ask
from integration.serving.test_services import infer, infer_request
from support.http2 import Http2Client
from support.serving import Running


@pytest.fixture
def client(linear: Running) -> Iterator[Http2Client]:
    with Http2Client("127.0.0.1", linear.port) as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models/linear", None),
        ("GET", "/v1/models/linear/metadata", None),
        ("POST", PREDICT, {"instances": [1, 2]}),
        ("POST", PREDICT, {"instances": ["a"]}),
        (
            "POST",
            "/v2/models/linear/infer",
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]},
        ),
        ("GET", "/v2/health/ready", None),
        ("GET", "/v2/models/other", None),
        ("GET", "/nothing?here", None),
        ("PUT", "/v2", None),
        ("OPTIONS", "*", None),
    ],
)
def test_it_is_answered_as_over_http_1(
    linear: Running, client: Http2Client, method: str, path: str, body: Any
) -> None:
    answer = client.ask(method, path, body)
    assert (answer.status, answer.document if answer.body else None) == ask(
        linear, method, path, body
    )
    assert answer.fields["content-length"] == str(len(answer.body))
    assert "date" in answer.fields


def test_requests_share_a_connection_with_each_other_and_gRPC_keeps_working(
    linear: Running, client: Http2Client
) -> None:
    numbers = [client.send("POST", PREDICT, {"instances": [float(each)]}) for each in range(200)]
    for each, number in enumerate(numbers):
        assert client.wait(number).document == {"predictions": [each * 2.0 + 10]}
    with linear.channel() as channel:
        assert infer(channel, infer_request([1.0])).model_version == "1"


def test_bodies_larger_than_the_windows_and_packed_ones(client: Http2Client) -> None:
    many = [float(each) for each in range(300_000)]
    expected = {"predictions": [each * 2 + 10 for each in many]}
    assert client.ask("POST", PREDICT, {"instances": many}).document == expected
    packed = gzip.compress(b'{"instances": [1.0, 2.0]}')
    assert client.ask("POST", PREDICT, packed, content_encoding="gzip").document == {
        "predictions": [12.0, 14.0]
    }
    answer = client.ask("POST", PREDICT, {"instances": many}, accept_encoding="gzip")
    assert answer.fields["content-encoding"] == "gzip"
    answer.body = gzip.decompress(answer.body)
    assert answer.document == expected


def test_head_has_the_length_and_no_body(client: Http2Client) -> None:
    whole, head = (client.ask(method, "/v2/models/linear") for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == whole.fields["content-length"]


def test_a_body_over_its_bound_is_413_and_the_connection_goes_on(client: Http2Client) -> None:
    number = client.send("POST", PREDICT, bytes(65 << 20))
    assert client.wait(number).status == 413
    assert client.ask("GET", "/v2/health/live").document == {"live": True}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"content_encoding": "br"}, 415),
        ({"expect": "200-ok"}, 417),
        ({"accept": "a\x0bb"}, 400),
        ({"x_other": "a\x01b"}, 400),
    ],
)
def test_heads_are_as_strict_as_over_http_1(
    client: Http2Client, fields: dict[str, str], status: int
) -> None:
    assert client.ask("GET", "/v2", **fields).status == status
    assert client.ask("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize("path", ["/a b", "/\u00e9", "/\x7f", "/\tx"])
def test_a_path_that_http_1_does_not_have_is_refused(client: Http2Client, path: str) -> None:
    assert client.ask("GET", path).status == 400

from __future__ import annotations

import pytest

from cloud_ml.net.http1.cors import Cors, parse_origins
from cloud_ml.net.http1.heads import Head

APP = "https://app.example.com"


def head(method: str = "GET", **fields: str) -> Head:
    return Head(
        method, "/", {name.replace("_", "-"): value for name, value in fields.items()}, old=False
    )


def test_only_pages_of_origins_that_are_named_may_read_answers() -> None:
    cors = Cors({APP, "http://localhost:3000"})
    assert cors.fields(head(origin=APP)).startswith(
        b"Access-Control-Allow-Origin: https://app.example.com\r\nVary: Origin\r\n"
    )
    for other in (
        "https://app.example.com.evil.org",
        "http://app.example.com",
        "https://app.example.com:8443",
        "null",
        "*",
    ):
        assert cors.fields(head(origin=other)) == b"Vary: Origin\r\n", other
    assert cors.fields(head()) == b"Vary: Origin\r\n", "a cache must not give this answer to a page"
    assert (
        Cors({"*"})
        .fields(head(origin="https://any"))
        .startswith(b"Access-Control-Allow-Origin: *\r\n")
    )
    assert Cors(()).fields(head(origin=APP)) == b""
    assert b"Credentials" not in cors.fields(head(origin=APP))


def test_a_preflight_is_one_of_an_origin_that_is_named() -> None:
    cors = Cors({APP})
    assert cors.is_preflight(head("OPTIONS", origin=APP, access_control_request_method="POST"))
    assert not cors.is_preflight(head("OPTIONS", origin=APP))
    assert not cors.is_preflight(head("POST", origin=APP, access_control_request_method="POST"))
    assert not cors.is_preflight(
        head("OPTIONS", origin="https://x", access_control_request_method="POST")
    )
    assert not cors.is_preflight(head("OPTIONS", access_control_request_method="POST"))
    assert not Cors(()).is_preflight(head("OPTIONS", access_control_request_method="POST"))
    assert Cors({"*"}).is_preflight(
        head("OPTIONS", origin="https://x", access_control_request_method="POST")
    )


def test_origins_are_read_strictly() -> None:
    assert parse_origins("") == frozenset()
    assert parse_origins(f" {APP} ,http://[::1]:80,*") == {APP, "http://[::1]:80", "*"}
    for wrong in (
        "app.example.com",
        APP + "/",
        "https://",
        "https://a b",
        "null",
        "https://a\r\nX: y",
        "file://a",
    ):
        with pytest.raises(ValueError, match="is no origin such as"):
            parse_origins(wrong)

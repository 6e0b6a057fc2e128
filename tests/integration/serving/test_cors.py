"""Calls of a browser: off by default, and where it is on the answers that a page needs."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

from integration.serving.test_rest import PREDICT
from support.http2 import Http2Client
from support.serving import Running, model_server, save_linear

APP = "https://app.example.com"
ASKS = {
    "Origin": APP,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
}


def answer(running: Running, method: str, fields: dict[str, str], body: bytes | None = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request(method, PREDICT, body, fields)
    found = connection.getresponse()
    found.read()
    connection.close()
    return found.status, found.headers


def test_it_is_off_by_default(linear: Running) -> None:
    status, fields = answer(linear, "OPTIONS", ASKS)
    assert (status, fields["Access-Control-Allow-Origin"]) == (405, None)
    status, fields = answer(linear, "POST", {"Origin": APP}, b'{"instances": [1]}')
    assert (status, fields["Access-Control-Allow-Origin"]) == (200, None)


def test_pages_of_an_origin_that_is_named_may_call(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    flags = (
        "--model_name",
        "linear",
        "--model_base_path",
        str(tmp_path),
        "--cors_origins",
        f"http://localhost,{APP}",
    )
    with model_server(*flags) as running:
        status, fields = answer(running, "OPTIONS", ASKS)
        assert status == 200
        assert fields["Access-Control-Allow-Origin"] == APP
        assert "POST" in fields["Access-Control-Allow-Methods"]
        assert {"authorization", "content-type"} <= set(
            fields["Access-Control-Allow-Headers"].split(", ")
        )
        for body, expected in ((b'{"instances": [1]}', 200), (b"{", 400)):
            status, fields = answer(running, "POST", {"Origin": APP}, body)
            assert (status, fields["Access-Control-Allow-Origin"], fields["Vary"]) == (
                expected,
                APP,
                "Origin",
            )
        status, fields = answer(running, "OPTIONS", ASKS | {"Origin": "https://evil.example.com"})
        assert (status, fields["Access-Control-Allow-Origin"]) == (405, None)
        status, fields = answer(
            running, "POST", {"Origin": "https://evil.example.com"}, b'{"instances": [1]}'
        )
        assert (status, fields["Access-Control-Allow-Origin"], fields["Vary"]) == (
            200,
            None,
            "Origin",
        )
        with Http2Client("127.0.0.1", running.port) as client:
            preflight = client.ask(
                "OPTIONS", PREDICT, origin=APP, access_control_request_method="POST"
            )
            assert (preflight.status, preflight.fields["access-control-allow-origin"]) == (200, APP)
            assert (
                client.ask("POST", PREDICT, {"instances": [1]}, origin=APP).fields["vary"]
                == "Origin"
            )

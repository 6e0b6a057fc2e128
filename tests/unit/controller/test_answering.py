"""Why a replica does not answer, in its own words, of which none can do harm."""

from __future__ import annotations

import json

import pytest

from cloud_ml.controller.answering import excuse

HEAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (json.dumps({"error": "no version of model 'm' is ready: version 1: it is junk"}), "version 1: it is junk"),
        (json.dumps({"error": "no version of model 'm' is ready"}), ""),
        (json.dumps({"error": "m is ready: \x1b[2J\nred" + "x" * 999}), " [2J red" + "x" * 492),
        (json.dumps({"error": ["is ready: "]}), ""),
        (json.dumps(["error"]), ""),
        ('{"error": ', ""),
        ("[" * 60_000, ""),
        ("", ""),
    ],
)
def test_what_is_told(body: str, told: str) -> None:
    assert excuse(HEAD + body.encode()) == told

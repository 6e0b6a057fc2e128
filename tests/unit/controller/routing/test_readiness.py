"""Why a replica does not answer, in its own words, of which none can do harm."""

from __future__ import annotations

import json

import pytest

from cloud_ml.controller.routing.readiness import ReplicaAnswer, parse_refusal

HEAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            json.dumps({"error": "no version of model 'm' is ready: version 1: it is junk"}),
            "version 1: it is junk",
        ),
        (json.dumps({"error": "no version of model 'm' is ready"}), ""),
        (json.dumps({"error": "m is ready: \x1b[2J\nred" + "x" * 999}), " [2J red" + "x" * 492),
        (json.dumps({"error": ["is ready: "]}), ""),
        (json.dumps(["error"]), ""),
        ('{"error": ', ""),
        ("[" * 60_000, ""),
        ("", ""),
    ],
)
def test_what_is_told(body: str, reason: str) -> None:
    assert parse_refusal(HEAD + body.encode()) == ReplicaAnswer(why=reason)


def test_a_model_server_that_gives_up_says_so() -> None:
    body = json.dumps(
        {"error": "no version of model 'm' can be loaded: version 1: it is ready: junk"}
    )
    assert parse_refusal(HEAD + body.encode()) == ReplicaAnswer(
        why="version 1: it is ready: junk", load_failed=True
    )
    empty = json.dumps({"error": "no version of model 'm' can be loaded: "})
    assert parse_refusal(HEAD + empty.encode()) == ReplicaAnswer()

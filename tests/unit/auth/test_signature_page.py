"""The reference page is the definition: its vectors are checked against the code, and by hand."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.auth import signature

PAGE = (Path(__file__).parents[3] / "docs/reference/signatures.md").read_text()
VECTORS: list[dict[str, Any]] = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
SECRET = "an example of a secret"
NOW = datetime.fromtimestamp(1_474_203_860, UTC)


def test_the_page_names_what_the_vectors_are_made_of() -> None:
    for fact in (
        SECRET,
        "AKEXAMPLE",
        "1474203860",
        "0123456789abcdef",
        signature.EMPTY_SHA256,
        signature.SCHEME,
    ):
        assert f"`{fact}`" in PAGE
    assert len(VECTORS) >= 6


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["target"])
def test_each_vector_of_the_page(vector: dict[str, Any]) -> None:
    content = vector["content"] or signature.EMPTY_SHA256
    headers = signature.sign(
        vector["method"],
        vector["target"],
        key="AKEXAMPLE",
        secret=SECRET,
        now=NOW,
        content=content,
        nonce="0123456789abcdef",
    )
    text = signature.string_to_sign(
        vector["method"], vector["target"], "1474203860", "0123456789abcdef", content
    )
    assert text == vector["text"]
    assert headers["Authorization"] == f"CLOUDML1-HMAC-SHA256 {vector['signature']}"
    assert (
        hmac.new(SECRET.encode(), vector["text"].encode(), hashlib.sha256).hexdigest()
        == vector["signature"]
    )


def test_each_row_of_the_table_of_queries() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| .+ \|$", PAGE, re.MULTILINE)
    queries = [(raw, signed) for raw, signed in rows if "=" in raw]
    assert len(queries) == 4
    for raw, signed in queries:
        assert signature.canonical_query(raw) == signed


def test_the_body_of_the_second_vector_is_told() -> None:
    body = re.search(r"second one's body is\n`(.+)`", PAGE)
    assert body is not None
    assert signature.content_sha256(body[1].encode()) == VECTORS[1]["content"]

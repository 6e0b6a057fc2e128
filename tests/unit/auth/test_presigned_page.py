"""Links: the vectors of the reference page, and what must not open anything."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.auth import presigned
from cloud_ml.errors import InvalidRequest, Unauthenticated

PAGE = (Path(__file__).parents[3] / "docs/reference/signatures.md").read_text()
SECRET = "an example of a secret"
NOW = datetime.fromtimestamp(1_474_203_860, UTC)
VECTORS: list[dict[str, Any]] = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
PATH = "/api/v1/storage/data/in%2Fput"


def verify(
    link: str,
    method: str = "GET",
    *,
    secret: str | None = SECRET,
    path: str = "",
    now: datetime = NOW,
) -> None:
    own, _, query = link.partition("?")
    claim = presigned.Claim.from_query(query, longest_s=604_800)
    claim.verify(secret, method=method, target=f"{path or own}?{query}", now=now, window_s=300)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["method"])
def test_each_vector_of_the_page(vector: dict[str, Any]) -> None:
    method, path = vector["method"], vector["path"]
    assert presigned.string_to_sign(method, path, "AKEXAMPLE", "1474207460") == vector["text"]
    link = presigned.sign(method, path, key="AKEXAMPLE", secret=SECRET, expires=1_474_207_460)
    assert link == vector["link"]
    verify(link, method)


def test_a_link_opens_what_it_was_made_for_and_nothing_else() -> None:
    link = presigned.sign("GET", PATH, key="AK", secret=SECRET, expires=1_474_207_460)
    verify(link)
    for wrong in (
        {"method": "PUT"},
        {"method": "DELETE"},
        {"method": "HEAD"},
        {"secret": "another"},
        {"secret": None},
        {"path": PATH + "x"},
        {"path": "/api/v1/storage/data/in/put"},
        {"now": datetime.fromtimestamp(1_474_207_460, UTC)},
    ):
        with pytest.raises(Unauthenticated):
            verify(link, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda link: link + "&limit=1",
        lambda link: link + "&",
        lambda link: link.replace("X-Cloudml-Key=AK&", ""),
        lambda link: link.replace("Key=AK", "Key=AK&X-Cloudml-Key=AL"),
        lambda link: link.replace("1474207460", "1474207461"),
        lambda link: link.replace("1474207460", "01474207460"),
        lambda link: link.replace("Key=AK", "Key=AL"),
        lambda link: link.replace("X-Cloudml-Key", "x-cloudml-key"),
        lambda link: link[:-1],
    ],
)
def test_a_link_that_was_changed_opens_nothing(change: Any) -> None:
    link = presigned.sign("GET", PATH, key="AK", secret=SECRET, expires=1_474_207_460)
    with pytest.raises(Unauthenticated):
        verify(change(link))


def test_a_link_is_not_good_for_ever() -> None:
    link = presigned.sign("GET", PATH, key="AK", secret=SECRET, expires=1_474_203_860 + 604_801)
    with pytest.raises(Unauthenticated, match="604801 s"):
        verify(link)


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", PATH), ("GET", PATH + "?a"), ("GET", "x"), ("GET", "/ü")]
)
def test_what_cannot_be_a_link(method: str, path: str) -> None:
    with pytest.raises(InvalidRequest):
        presigned.sign(method, path, key="AK", secret=SECRET, expires=1)

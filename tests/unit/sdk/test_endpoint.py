from __future__ import annotations

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.endpoint import parse_endpoint


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://127.0.0.1:8471", "http://127.0.0.1:8471"),
        ("http://127.0.0.1:8471/", "http://127.0.0.1:8471"),
        ("https://ml.example.com", "https://ml.example.com"),
        ("https://ml.example.com:443/", "https://ml.example.com"),
        ("https://ml.example.com/team/ml/", "https://ml.example.com/team/ml"),
        ("http://ml.example.com", "http://ml.example.com"),
        ("http://[::1]:8471", "http://[::1]:8471"),
        (" localhost:8471 ", "http://localhost:8471"),
        ("127.0.0.1:8471", "http://127.0.0.1:8471"),
        ("ml.example.com", "https://ml.example.com"),
        ("HTTP://ml.example.com:1", "http://ml.example.com:1"),
    ],
)
def test_an_endpoint_is_read_and_shown(text: str, shown: str) -> None:
    assert str(parse_endpoint(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://x",
        "http://x:0",
        "http://x:65536",
        "http://x:y",
        "http://x?q=1",
        "http://x/#f",
        "http://[::1",
    ],
)
def test_nonsense_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidRequest, match="allowed is a URL such as") as caught:
        parse_endpoint(text)
    assert caught.value.field == "endpoint"


def test_the_path_of_a_request_is_no_part_of_an_endpoint() -> None:
    for text in ("https://ml.example.com/ml/api/v1", "https://ml.example.com/ml/cloud_ml/v1/train"):
        with pytest.raises(InvalidRequest) as caught:
            parse_endpoint(text)
        assert caught.value.hint == "Did you mean https://ml.example.com/ml?"


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_endpoint("https://user:hunter2@ml.example.com")
    assert "hunter2" not in str(caught.value.document())

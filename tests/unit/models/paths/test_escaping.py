from __future__ import annotations

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.paths.escaping import escape_path, escaped_whole, unescape_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"plain/file.txt", "plain/file.txt"),
        ("größe.txt".encode(), "größe.txt"),
        (b"bad\xff.txt", r"bad\xff.txt"),
        (b"a\nb\x1b[31m", r"a\nb\x1b[31m"),
        (b"a\\b", r"a\\b"),
        ("right\u202eleft".encode(), r"right\u202eleft"),
    ],
)  # fmt: skip
def test_names_are_told_so_that_they_cannot_harm(path: bytes, shown: str) -> None:
    assert escape_path(path) == shown


def test_of_a_long_path_the_end_is_told() -> None:
    assert escape_path(b"a" * 200 + b"/model.pt") == "…" + "a" * 91 + "/model.pt"


@pytest.mark.parametrize(
    "path",
    [bytes(range(256)), "\x85\xa0\u202e\U000e0001😀ß".encode(), b"a\\xff", b"\xed\xa0\x80", b""],
)
def test_what_is_shown_leads_back_to_the_path(path: bytes) -> None:
    assert unescape_path(escaped_whole(path)) == path


@pytest.mark.parametrize(
    "text",
    ["a\\", "a\\q", "\\x1", "\\xFg", "\\ud800", "\\U00110000", "\\Uffffffff", "\udcff", "\\u12"],
)
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not written as"):
        unescape_path(text)

"""``fds://`` as paths: what is rewritten, and what is left as the user wrote it."""

from __future__ import annotations

import pytest

from cloud_ml.engines.base import JobPaths
from cloud_ml.recipes.paths import rewrite, rewrite_all, rewrite_values

PLACES = JobPaths(storage="/storage", fds="/fds")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("fds://bucket/a/b.txt", "/storage/bucket/a/b.txt"),
        ("fds://bucket", "/storage/bucket"),
        ("fds://bucket/", "/storage/bucket"),
        ("fds://bucket/folder/", "/storage/bucket/folder"),
        ("--data=fds://bucket/a", "--data=/storage/bucket/a"),
        ("-d=fds://bucket/a", "-d=/storage/bucket/a"),
        ("fds://bucket/a=b", "/storage/bucket/a=b"),
        ("--data=fds://bucket/a=b", "--data=/storage/bucket/a=b"),
    ],
)
def test_a_uri_becomes_a_path(text: str, path: str) -> None:
    assert rewrite(text, PLACES) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "plain", "--epochs=3", "/storage/bucket", "see fds://bucket/a", "data=fds://bucket/a", "FDS://bucket/a",
        "fds://Bad_Bucket/a", "fds://bucket/../other/a", "fds://bucket/a//b", "fds://", "--data=fds://", "s3://bucket/a",
    ],
)  # fmt: skip
def test_everything_else_stays_as_it_was_written(text: str) -> None:
    assert rewrite(text, PLACES) == text


def test_lists_and_values() -> None:
    assert rewrite_all(["a", "fds://bucket/b"], PLACES) == ("a", "/storage/bucket/b")
    assert rewrite_values({"fds://x": "fds://bucket/b", "B": "c"}, PLACES) == {
        "fds://x": "/storage/bucket/b",
        "B": "c",
    }

from __future__ import annotations

import pytest

from cloud_ml.models.escaping import escaped


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
    assert escaped(path) == shown


def test_of_a_long_path_the_end_is_told() -> None:
    assert escaped(b"a" * 200 + b"/model.pt") == "…" + "a" * 91 + "/model.pt"

"""Text files as Windows writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments.builder import dependencies
from cloud_ml.text_encoding import decode_text

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_byte_order_mark_says_the_encoding(encoding: str) -> None:
    assert decode_text("größe\r\n2\n".encode(encoding)) == "größe\n2\n"


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_text(b"\xff\xfea")
    assert decode_text(b"a\xff", "replace") == "a\ufffd"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_requirements_in_any_of_these_encodings(tmp_path: Path, encoding: str) -> None:
    """PowerShell's ``pip freeze > requirements.txt`` writes UTF-16."""
    lines = "six==1.17.0\r\nrich \\\r\n  >=13\r\n-r more.txt\r\n"
    (tmp_path / "requirements.txt").write_bytes(lines.encode(encoding))
    (tmp_path / "more.txt").write_bytes("tqdm\r\n".encode(encoding))
    (tmp_path / "pyproject.toml").write_bytes(
        '[project]\r\nname = "a"\r\nrequires-python = ">=3.9"\r\n'.encode(encoding)
    )
    declared = dependencies.read(tmp_path, None, built=False)
    assert [" ".join(one.split()) for one in declared.requires] == [
        "six==1.17.0",
        "rich >=13",
        "tqdm",
    ]
    assert declared.pythons == [("pyproject.toml", ">=3.9")]

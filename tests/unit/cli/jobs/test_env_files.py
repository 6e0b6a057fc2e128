"""Files of variables: ``--env-file``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.cli.jobs.env_files import read_env_file
from cloud_ml.errors import InvalidRequest


@pytest.mark.parametrize(
    ("content", "variables"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("# comment\n\n  A = 1  \n", {"A": "1"}),
        ("export A=1", {"A": "1"}),
        (
            "A='single # kept' # comment\nB=\"double\\tkept\"",
            {"A": "single # kept", "B": "double\tkept"},
        ),
        (
            "A=url#fragment\nB=value # comment\nC=# nothing",
            {"A": "url#fragment", "B": "value", "C": ""},
        ),
        ("A=a=b\nB=", {"A": "a=b", "B": ""}),
        ("HOME\nNOT_SET", {"HOME": "/root"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=it's\nB=\"open", {"A": "it's", "B": '"open'}),
        ("A=1\nA=2", {"A": "2"}),
        ('A="\\\\n"', {"A": "\\n"}),
    ],
)
def test_variables_are_read_as_docker_and_dotenv_do(
    tmp_path: Path, content: str, variables: dict[str, str]
) -> None:
    (tmp_path / "vars.env").write_text(content, newline="")
    assert read_env_file(tmp_path / "vars.env", {"HOME": "/root"}) == variables


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"A=1\nnot a variable\n", "line 2"),
        (b"1A=2", "line 1"),
        (b"=2", "line 1"),
        (b"A=\xff", "UTF-8"),
        (b"A=" + b"x" * (1 << 20), "larger than 1048576 bytes"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "vars.env"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest) as refused:
        read_env_file(file, {})
    assert str(file) in refused.value.message
    assert words in refused.value.message


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "none.env", tmp_path):
        with pytest.raises(InvalidRequest, match="cannot be read"):
            read_env_file(place, {})

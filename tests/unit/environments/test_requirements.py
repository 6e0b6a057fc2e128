from __future__ import annotations

import re

import pytest

from cloud_ml.environments.packages.requirements import (
    BadRequirement,
    from_file_text,
    locked_versions,
    parse,
    without_secrets,
)


@pytest.mark.parametrize(
    ("text", "name", "specifier"),
    [
        ("tensorflow", "tensorflow", ""),
        ("TF_Keras >=2.15,<3 ; python_version > '3'", "tf-keras", ">=2.15,<3"),
        ("requests[socks] (>=2.0)", "requests", ">=2.0"),
        ("six>=1; extra == 'x'", "six", ">=1"),
    ],
)
def test_parse(text: str, name: str, specifier: str) -> None:
    requirement = parse(text)
    assert (requirement.name, requirement.specifier, requirement.url) == (name, specifier, False)


def test_a_remote_address_is_told_apart() -> None:
    assert parse("mine @ https://example.org/mine-1.0.tar.gz").url
    assert parse("mine @ git+https://example.org/mine.git").url


@pytest.mark.parametrize(
    "text",
    [
        "mine @ file:///etc/passwd", "./folder", "../up", "/abs", "git+ssh://host/x", "mine @ /etc", "a b",
        "mine-1.0-py3-none-any.whl", "mine-1.0.tar.gz", "mine.ZIP ; python_version > "
                                                        "'3'", "mine[x].whl",
        "mine @ HTTPS:/etc/passwd", "mine @ https:folder",
    ],
)  # fmt: skip
def test_local_and_odd_references_are_refused(text: str) -> None:
    with pytest.raises(BadRequirement, match=re.escape(text)):
        parse(text)


@pytest.mark.parametrize(
    "text", ["six==1\n-r /etc/shadow", "six==1\r--index-url https://h", "six\x85==1", "a==1\0"]
)
def test_one_requirement_is_one_line(text: str) -> None:
    """A build writes what its package requires: what follows a line break would be an option of
    the server's uv.
    """
    with pytest.raises(BadRequirement, match="is more than one line") as caught:
        parse(text)
    assert str(caught.value).isprintable()


def test_requirements_file() -> None:
    lines, notices = from_file_text(
        "# a comment\n\n--index-url https://example.org/simple\n-r more.txt\n"
        "numpy>=1.20  # why\nsix==1.17.0 \\\n    --hash=sha256:abc\n"
    )
    assert lines == ["numpy>=1.20", "six==1.17.0"]
    assert len(notices) == 2
    assert "--index-url" in notices[0]
    assert "operator" in notices[0]


def test_an_address_without_a_name_is_told_how_it_is_written() -> None:
    with pytest.raises(
        BadRequirement, match=r"write NAME @ git\+https://\*\*\*\*@git\.example\.com/a\.git or put"
    ):
        parse("git+https://token@git.example.com/a.git")
    with pytest.raises(BadRequirement, match=r"write NAME @ git\+https://… or put"):
        parse("git+ssh://git@git.example.com/a.git")


def test_requirements_file_with_a_bad_line() -> None:
    with pytest.raises(BadRequirement, match=r"\./local"):
        from_file_text("numpy\n./local\n")


def test_locked_reads_pins_and_skips_hashes() -> None:
    assert locked_versions(
        "Six==1.17.0 \\\n    --hash=sha256:abc\ntf_keras==2.21.0\n# no==1\n"
    ) == {
        "six": "1.17.0",
        "tf-keras": "2.21.0",
    }


def test_no_secret_is_shown() -> None:
    one = parse("secret @ https://user:p4ss@host.test/secret-1.0-py3-none-any.whl")
    assert one.shown == "secret @ https://****@host.test/secret-1.0-py3-none-any.whl"
    with pytest.raises(BadRequirement) as caught:
        parse("secret @ ssh://user:p4ss@host.test/x")
    assert "p4ss" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "https://user:secret@host/x",
        "git+ssh://user:se@cret@host/x",
        "\udcfe://user:secret@host",
        "x @ é://:secret@h",
    ],
)
def test_no_spelling_of_an_address_shows_its_secret(text: str) -> None:
    assert "cret" not in without_secrets(text)

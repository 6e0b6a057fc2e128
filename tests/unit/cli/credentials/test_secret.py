"""``cloudml secret``: where values may come from, and that no message repeats one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cloud_ml.cli.credentials import secret as commands
from cloud_ml.cli.session import Session
from cloud_ml.models.secrets.secret import Secret

if TYPE_CHECKING:
    from unit.cli.conftest import Run

VALUE = "hunter2-do-not-print"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Secrets:
    """The secrets of a server, with the values that it would not show."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.users: dict[str, list[str]] = {}

    def create(self, name: str, value: bytes | str, *, replace: bool = False) -> Secret:
        assert replace or name not in self.values
        self.values[name] = value.encode() if isinstance(value, str) else value
        return self.describe(name)

    def describe(self, name: str) -> Secret:
        size = len(self.values[name])
        return Secret(
            name=name,
            org="default",
            owner="mei",
            size=size,
            state="Ready",
            created_at=NOW,
            updated_at=NOW,
            used_by=self.users.get(name, []),
        )

    def list(self) -> list[Secret]:
        return [self.describe(name) for name in sorted(self.values)]

    def delete(self, name: str) -> Secret:
        found = self.describe(name)
        del self.values[name]
        return found


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    found = Secrets()
    monkeypatch.setattr(Session, "client", SimpleNamespace(secrets=found, close=lambda: None))
    return found


def file(folder: Path, content: str) -> str:
    path = folder / "value.txt"
    path.write_text(content)
    return str(path)


@pytest.mark.parametrize(
    "line",
    [
        "hf-token FILE", "hf-token --from-file "
                         "FILE", "hf-token --from-file=key=FILE", "-n hf-token -f FILE",
        "--secret_name hf-token FILE", "generic hf-token "
                                       "--from-file=key=FILE", "hf-token --file FILE",
    ],
)  # fmt: skip
def test_a_file_as_other_tools_name_it(
    offline: Run, secrets: Secrets, tmp_path: Path, line: str
) -> None:
    words = line.replace("FILE", file(tmp_path, VALUE + "\n")).split()
    result = offline("secret", "create", *words)
    assert result.exit_code == 0, result.stderr
    assert secrets.values == {"hf-token": f"{VALUE}\n".encode()}
    assert "--secret hf-token=HF_TOKEN" in result.stderr
    assert VALUE not in result.output


@pytest.mark.parametrize("words", [("hf-token", "-"), ("hf-token",), ("hf-token", "-f", "-")])
def test_standard_input_byte_for_byte(
    offline: Run, secrets: Secrets, words: tuple[str, ...]
) -> None:
    assert offline("secret", "create", *words, text=VALUE).exit_code == 0
    assert secrets.values == {"hf-token": VALUE.encode()}
    assert offline("secret", "create", "empty", "-", text="").exit_code == 1


def test_a_person_types_it_unseen(
    offline: Run, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "is_person", lambda: True)
    result = offline("secret", "create", "hf-token", text=VALUE + "\n")
    assert result.exit_code == 0, result.stderr
    assert secrets.values == {"hf-token": VALUE.encode()}
    assert VALUE not in result.output


@pytest.mark.parametrize(
    "words",
    [("db", VALUE), (f"db={VALUE}",), ("db", "--from-literal", f"a={VALUE}"), ("db", f"--value={VALUE}"),
     ("set", "db", VALUE)],
)  # fmt: skip
def test_a_value_in_an_argument_is_refused_and_not_repeated(
    offline: Run, secrets: Secrets, words: tuple[str, ...]
) -> None:
    line = words if words[0] == "set" else ("create", *words)
    result = offline("secret", *line)
    assert result.exit_code == 2
    assert "standard input" in result.stderr
    assert VALUE not in result.output
    assert secrets.values == {}


def test_a_file_of_variables_is_stored_whole_or_not_at_all(
    offline: Run, secrets: Secrets, tmp_path: Path
) -> None:
    path = file(tmp_path, f"# mine\nHF_TOKEN={VALUE}\nexport DB_PASSWORD='x y'\n")
    result = offline("secret", "create", "--from-env-file", path)
    assert result.exit_code == 0, result.stderr
    assert secrets.values == {"hf-token": VALUE.encode(), "db-password": b"x y"}
    assert "--secret hf-token=HF_TOKEN" in result.stdout
    again = offline("secret", "create", "--from-env-file", path)
    assert again.exit_code == 1
    assert "db-password, hf-token; nothing is stored" in again.stderr
    assert offline("secret", "create", "--from-env-file", path, "--replace").exit_code == 0
    for content, words in (
        ("", "no variables"),
        ("A=1\nB=\n", "B has no value"),
        ("A_B=1\na_b=2\n", "one secret"),
    ):
        result = offline(
            "secret", "create", "--replace", "--from-env-file", file(tmp_path, content)
        )
        assert result.exit_code == 1
        assert words in result.stderr
    assert set(secrets.values) == {"hf-token", "db-password"}


def test_lists_and_descriptions(offline: Run, secrets: Secrets) -> None:
    secrets.create("hf-token", VALUE)
    assert offline("secret", "list", "-o", "name").stdout == "hf-token\n"
    assert offline("secrets", "ls").stdout.splitlines()[1].split()[:3] == [
        "hf-token",
        "Ready",
        str(len(VALUE)),
    ]
    assert f"Size:    {len(VALUE)} bytes" in offline("secret", "describe", "hf-token").stdout
    assert "is never shown again" in offline("secret", "get", "hf-token").stderr
    assert offline("secret", "rm", "hf-token").stdout == "the secret hf-token is deleted\n"


def test_a_secret_in_use_is_deleted_only_on_request(run: Run, secrets: Secrets) -> None:
    for name in ("free", "used", "more"):
        secrets.create(name, VALUE)
    secrets.users = {"used": ["model service linear/v1", "job churn"], "more": ["job churn"]}
    refused = run("secret", "delete", "free", "used")
    assert refused.exit_code == 1
    assert "used is used by model service linear/v1, job churn" in str(refused.stderr)
    assert sorted(secrets.values) == ["free", "more", "used"]
    assert run("secret", "delete", "free").exit_code == 0
    assert run("secret", "delete", "used", "--yes").exit_code == 0
    assert run("secret", "delete", "more", "--force").exit_code == 0
    assert secrets.values == {}


@pytest.mark.parametrize(("answer", "left"), [("n\n", ["used"]), ("y\n", [])])
def test_a_person_is_asked(
    run: Run, secrets: Secrets, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    monkeypatch.setattr(commands, "is_person", lambda: True)
    secrets.create("used", VALUE)
    secrets.users = {"used": ["job churn"]}
    run("secret", "delete", "used", text=answer)
    assert list(secrets.values) == left

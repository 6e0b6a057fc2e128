"""Known vulnerabilities are found, and a database that cannot be asked is no clean bill."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r"^click==(\S+)", (ROOT / "locks/base.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]


def audit(*arguments: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools/audit.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def database(path: Path, affected: dict[str, Any], **more: Any) -> str:
    with zipfile.ZipFile(path, "w") as bundle:
        package = {"ecosystem": "PyPI", "name": "Click"}
        bundle.writestr(
            "A-1.json",
            json.dumps({"id": "A-1", "affected": [{"package": package, **affected}], **more}),
        )
    return str(path)


def span(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": ["0.1", VERSION]},
        span({"introduced": "0"}),
        span({"introduced": "0"}, {"fixed": "1"}, {"introduced": "2"}, {"fixed": "999"}),
        span({"introduced": VERSION}, {"last_affected": VERSION}),
    ],
)
def test_a_locked_version_that_is_affected_is_told(
    affected: dict[str, Any], tmp_path: Path
) -> None:
    code, output = audit("--database", database(tmp_path / "all.zip", affected))
    assert code == 1
    assert f"click {VERSION}: A-1 (https://osv.dev/A-1); in all, base, develop" in output
    assert "1 vulnerabilities are known" in output


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": ["0.1"]},
        span({"introduced": "0"}, {"fixed": VERSION}),
        span({"introduced": "0"}, {"last_affected": "1"}),
        span({"introduced": "999"}),
        {"package": {"ecosystem": "npm", "name": "click"}, "versions": [VERSION]},
    ],
)
def test_others_are_not(affected: dict[str, Any], tmp_path: Path) -> None:
    code, output = audit("--database", database(tmp_path / "all.zip", affected))
    assert (code, "0 vulnerabilities are known" in output) == (0, True)


def test_what_was_withdrawn_does_not_count(tmp_path: Path) -> None:
    withdrawn = database(
        tmp_path / "all.zip", {"versions": [VERSION]}, withdrawn="2026-01-01T00:00:00Z"
    )
    assert audit("--database", withdrawn)[0] == 0


@pytest.mark.parametrize(("strict", "expected"), [((), 0), (("--strict",), 2)])
def test_a_database_that_cannot_be_asked_is_said(
    strict: tuple[str, ...], expected: int, tmp_path: Path
) -> None:
    code, output = audit("--database", str(tmp_path / "none.zip"), *strict)
    assert code == expected
    assert output.startswith("NOT AUDITED: ")

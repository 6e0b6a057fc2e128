"""The files that editors and hosts of repositories read call the Makefile and `.ci/run`, and
repeat nothing of them.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_ml.settings import Settings

ROOT = Path(__file__).parents[2]
WORKFLOWS = [".github/workflows/ci.yml", ".gitlab-ci.yml", ".pre-commit-config.yaml"]
FORMS = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
)


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def commands(document: Any) -> set[str]:
    """Every command that a workflow runs."""
    found: set[str] = set()
    if isinstance(document, dict):
        for key, value in document.items():
            if key in {"run", "entry"} and isinstance(value, str):
                found.add(value)
            elif key == "script":
                found.update(value)
            else:
                found |= commands(value)
    elif isinstance(document, list):
        found = found.union(*map(commands, document)) if document else found
    return found


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_what_everybody_runs(name: str) -> None:
    found = commands(loaded(name))
    assert found
    for command in found:
        program, _, target = command.partition(" ")
        assert command == ".ci/run" or (program == "make" and target in targets()), command


def test_the_development_container_makes_what_the_makefile_makes() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"].removeprefix("make ") in targets()
    assert container["forwardPorts"] == [Settings().server.port]
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).is_file()


def test_editors_break_lines_where_the_formatter_does() -> None:
    editor = configparser.ConfigParser()
    editor.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert editor.getint("*", "max_line_length") == project["tool"]["ruff"]["line-length"]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_for_issues_has_what_the_host_wants(name: str) -> None:
    form = loaded(name)
    if name.endswith("config.yml"):
        assert form["blank_issues_enabled"] is True
        return
    assert form["name"]
    assert form["description"]
    assert all(field["attributes"]["label"] for field in form["body"])

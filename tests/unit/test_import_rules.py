"""The rules of imports (`.importlinter`) speak of every room, and see what is loaded by its name."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import click
import pytest

import cloud_ml
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.main import cli

PACKAGE = Path(cloud_ml.__file__).parent
RULES = Path(__file__).parents[2] / ".importlinter"


def rooms() -> set[str]:
    """Every module and package directly below `cloud_ml`."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return {f"cloud_ml.{name}" for name in packages | files}


def lazy_targets(group: LazyGroup) -> set[str]:
    """The modules that a group of commands and the groups below it load by name."""
    modules = {lazy.target.partition(":")[0] for lazy in group.lazy.values()}
    for name in group.lazy:
        command = group.get_command(click.Context(group), name)
        if isinstance(command, LazyGroup):
            modules |= lazy_targets(command)
    return modules


@pytest.mark.parametrize(
    ("contract", "allowed"),
    [
        ("launcher", {"cloud_ml.launcher"}),
        (
            "environments",
            {"cloud_ml.environments", "cloud_ml.launcher", "cloud_ml.text_encoding"},
        ),
        ("serving", {"cloud_ml.serving", "cloud_ml.net"}),
        ("net", {"cloud_ml.net"}),
        ("tensorboard", {"cloud_ml.tensorboard"}),
    ],
)
def test_a_rule_of_nothing_else_of_ours_names_every_other_room(
    contract: str, allowed: set[str]
) -> None:
    rules = ConfigParser()
    rules.read(RULES)
    forbidden = set(rules[f"importlinter:contract:{contract}"]["forbidden_modules"].split())
    assert rooms() - allowed == {name for name in forbidden if name.startswith("cloud_ml")}


def test_commands_that_are_loaded_by_name_are_in_the_room_that_the_rules_check() -> None:
    targets = lazy_targets(cli)
    assert len(targets) > 10
    assert {name for name in targets if not name.startswith("cloud_ml.cli.")} == set()

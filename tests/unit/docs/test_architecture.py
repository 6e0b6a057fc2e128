"""The page on architecture names rooms that exist, and no room is missing on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/cloud_ml"
PAGE = (ROOT / "docs/architecture.md").read_text()
CHANGES = PAGE.partition("## 8. ")[2]
TREE = PAGE.partition("## 2. Tree")[2].partition("## 3. ")[0]


def named_paths() -> list[str]:
    """What the table of changes names with a slash, without places of things yet to come."""
    named = re.findall(r"`([\w./<>]+)`", CHANGES)
    return sorted({path for path in named if "/" in path and "<" not in path})


@pytest.mark.parametrize("path", named_paths())
def test_the_table_of_changes_names_what_exists(path: str) -> None:
    base = ROOT if path.startswith(("tests/", "src/")) else SOURCE
    assert (base / path).exists()


def test_the_table_answers_ten_changes() -> None:
    rows = [line for line in CHANGES.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 10


def test_each_room_stands_in_the_tree() -> None:
    rooms = sorted(folder.parent.name for folder in SOURCE.glob("*/__init__.py"))
    missing = [room for room in rooms if f"\n  {room}/ " not in TREE]
    assert not missing

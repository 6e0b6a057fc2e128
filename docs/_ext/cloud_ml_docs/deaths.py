"""What happens when a part of a job dies, from the table that the tests of it read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_ml_docs.markdown import code, table

TABLE = Path(__file__).parents[3] / "tests" / "faults" / "deaths.toml"


def rows() -> str:
    """A line for each row of the table."""
    document = tomllib.loads(TABLE.read_text("utf-8"))
    header = ("Who dies", "Of what", "When", "In a job of", "What happens", "Costs", "Test")
    return table(header, [_line(document, row) for row in document["row"]])


def _line(document: Mapping[str, Any], row: Mapping[str, Any]) -> Sequence[str]:
    return (
        _joined(document["who"], row["who"]),
        _joined(document["causes"], row["causes"]),
        ", ".join(row["moments"]),
        _joined(document["jobs"], row["jobs"]),
        document["follows"][row["follows"]],
        _costs(row),
        code(row.get("test", document["played_by"])),
    )


def _joined(words: Mapping[str, str], keys: Sequence[str]) -> str:
    return "; ".join(words[key] for key in keys)


def _costs(row: Mapping[str, Any]) -> str:
    if row["follows"] == "task":
        return "a restart of this task"
    if row["follows"] in ("attempt", "larger"):
        return "nothing" if row.get("free") else "a retry"
    return ""

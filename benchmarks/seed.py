"""Fills a server's database with jobs of long ago, faster than they could be submitted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

_PHASES = ("Succeeded", "Succeeded", "Succeeded", "Failed", "Stopped")


def copies(database: Path, name: str, numbers: Sequence[int]) -> None:
    """Add copies of the job ``name`` (which has ended), ended in various ways. The server must
    be down.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
        row = connection.execute(
            f"SELECT {', '.join(columns)} FROM records WHERE name = ?", (name,)
        ).fetchone()
        template = dict(zip(columns, row, strict=True))
        newest = connection.execute("SELECT revision FROM counters").fetchone()[0]
        marks = ", ".join(f":{column}" for column in columns)
        connection.executemany(
            f"INSERT INTO records ({', '.join(columns)}) VALUES ({marks})",
            (_copy(template, newest + 1 + place, number) for place, number in enumerate(numbers)),
        )
        connection.execute("UPDATE counters SET revision = ?", (newest + len(numbers),))


def _copy(template: dict[str, object], revision: int, number: int) -> dict[str, object]:
    phase = _PHASES[number % len(_PHASES)]
    status = str(template["status"]).replace(f'"{template["index_value"]}"', f'"{phase}"', 1)
    return template | {
        "number": revision,
        "revision": revision,
        "uid": f"seed{number:028d}",
        "name": f"seeded-{number}",
        "index_value": phase,
        "status": status,
    }

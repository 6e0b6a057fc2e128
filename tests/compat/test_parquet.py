"""Parquet files that we write are read by Arrow and DuckDB, as they are published."""

from __future__ import annotations

import json
import math
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.cli.display.parquet_file import Column, ColumnType, write_parquet
from support.client_environments import client_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
READERS = ("pyarrow==22.0.0", "duckdb==1.4.2")
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
COLUMNS = [
    Column("metrics.loss", ColumnType.NUMBER),
    Column("step", ColumnType.WHOLE_NUMBER),
    Column("name", ColumnType.TEXT),
    Column("at", ColumnType.TIME),
]
ROWS = [
    [0.1, -(2**63), "a", AT],
    [None, None, None, None],
    [math.inf, 2**63 - 1, "é\u4e2d\n", AT],
    [math.nan, 0, "", datetime(1969, 1, 1, tzinfo=UTC)],
]
READ = """
import json, sys
import duckdb, pyarrow.parquet
found = []
for table in (pyarrow.parquet.read_table(sys.argv[1]), duckdb.sql(
        f"SELECT * FROM read_parquet('{sys.argv[1]}')").arrow()):
    table = table.read_all() if hasattr(table, "read_all") else table
    rows = table.slice(0, 4).to_pylist()
    found.append([table.num_rows, len(set(table.column("name").to_pylist())),
                  [[repr(row[name]) if name != "at" else row[name] and row[name].timestamp()
                    for name in table.column_names] for row in rows], table.column_names])
print(json.dumps(found))
"""


def test_arrow_and_duckdb_read_what_was_written(tmp_path: Path) -> None:
    python = client_environment("parquet-readers", *READERS) / "python"
    many = [[float(number), number, f"name {number % 7}", AT] for number in range(120_000)]
    path = tmp_path / "table.parquet"
    with path.open("wb") as target:
        assert write_parquet(target, COLUMNS, [*ROWS, *many]) == len(ROWS) + len(many)
    ran = subprocess.run(
        [str(python), "-c", READ, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    expected = [
        ["0.1", str(-(2**63)), "'a'", AT.timestamp()],
        ["None", "None", "None", None],
        ["inf", str(2**63 - 1), repr("é\u4e2d\n"), AT.timestamp()],
        ["nan", "0", "''", datetime(1969, 1, 1, tzinfo=UTC).timestamp()],
    ]
    names = [column.name for column in COLUMNS]
    for rows, texts, first, columns in json.loads(ran.stdout):
        assert (rows, texts, columns) == (len(ROWS) + len(many), 11, names)
        assert first == expected
    assert path.stat().st_size < 2_000_000


def test_a_table_without_rows_is_read(tmp_path: Path) -> None:
    python = client_environment("parquet-readers", *READERS) / "python"
    path = tmp_path / "empty.parquet"
    with path.open("wb") as target:
        write_parquet(target, COLUMNS, [])
    script = "import sys, pyarrow.parquet as p; print(p.read_table(sys.argv[1]).shape)"
    ran = subprocess.run(
        [str(python), "-c", script, str(path)], capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    assert ran.stdout.strip() == "(0, 4)"

"""``-o csv``: what other people wrote is neither a formula nor a row of its own."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.cli.display.csv_tables import columns_of, echo_csv


def _printed(capsys: pytest.CaptureFixture[str], *rows: list[Any]) -> list[list[str]]:
    echo_csv(["=header"], rows)
    return list(csv.reader(io.StringIO(capsys.readouterr().out)))


def test_formulas_are_text_and_numbers_stay_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["=1+1", "+cmd", "-x", "@sum", " =1", "-0.5", "+1e3", "a,b", '"q"']
    (header, row) = _printed(capsys, texts)
    assert header == ["'=header"]
    assert row == ["'=1+1", "'+cmd", "'-x", "'@sum", "' =1", "-0.5", "+1e3", "a,b", '"q"']


def test_values_keep_all_their_digits(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    (_, row) = _printed(capsys, [0.1 + 0.2, -3, True, None, float("-inf"), at])
    assert row == ["0.30000000000000004", "-3", "true", "", "-inf", "2026-01-01T00:00:00+00:00"]


def test_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo_csv(["a"], [["x\n=1\r\x1b[2J"]])
    output = capsys.readouterr().out
    assert len(output.splitlines()) == 2
    assert "\x1b" not in output


def test_columns_are_those_of_any_row() -> None:
    assert columns_of("params", [{"b": 1}, {"a": 1}]) == {"params.a": "a", "params.b": "b"}

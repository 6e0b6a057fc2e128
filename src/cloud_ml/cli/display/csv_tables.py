"""Tables as CSV, for spreadsheets and programs: ``-o csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import click

from cloud_ml.cli.display.terminal import printable

# With these a spreadsheet takes a cell for a formula, and runs it.
_FORMULA_STARTS = ("=", "+", "-", "@")


def echo_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a header and rows: times in ISO 8601, numbers with all their digits.

    Text that a spreadsheet would run as a formula gets an apostrophe in front. Control characters
    are escaped, so a row is always one line.
    """
    click.echo("".join(csv_lines(header, rows)), nl=False)


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The same, line by line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in chain([header], rows):
        writer.writerow([_cell(value) for value in row])
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def columns_of(prefix: str, found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The key of each column, by its name: all keys that any row has."""
    keys = dict.fromkeys(key for each in found for key in each)
    return {f"{prefix}.{key}": key for key in sorted(keys)}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = printable(str(value)).replace("\n", "\\n").replace("\t", "\\t")
    is_formula = text.lstrip().startswith(_FORMULA_STARTS) and not _is_number(text)
    return f"'{text}" if is_formula else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

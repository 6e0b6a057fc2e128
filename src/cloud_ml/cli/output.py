"""How commands show what they found: plain aligned tables, JSON, colours on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_STATE_COLOURS = {
    "Succeeded": "green",
    "Running": "green",
    "Finishing": "green",
    "Queued": "yellow",
    "Starting": "yellow",
    "Restarting": "yellow",
    "Stopping": "yellow",
    "Failed": "red",
    "Stopped": "red",
}
_SECRET_FIELDS = ("hdfs_krb_password", "hdfs_krb_keytab")


def output_option(*kinds: str) -> Callable[[F], F]:
    """The option ``-o/--output``; its value is ``None`` for the usual table."""
    return click.option("-o", "--output", type=click.Choice(kinds), help="Another form than the usual table.")


def echo(text: str) -> None:
    """Print a line."""
    click.echo(text)


def note(text: str) -> None:
    """Tell the person in front of it something that is not the result: on standard error."""
    click.echo(text, err=True)


def echo_json(document: Any) -> None:
    """Print a JSON document: indented for people, and just as good for programs."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def echo_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, painted: int | None = None) -> None:
    """Print rows under a header, columns two spaces apart. Column ``painted`` shows states in their colour."""
    cells = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    click.echo("  ".join(name.ljust(width) for name, width in zip(header, widths, strict=True)).rstrip())
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[-1] = row[-1]
        if painted is not None:
            padded[painted] = paint_state(row[painted]) + padded[painted][len(row[painted]) :]
        click.echo("  ".join(padded).rstrip())


def echo_facts(facts: Mapping[str, Any], *, painted: str = "") -> None:
    """Print names and values, aligned; what is empty is left out. The value of ``painted`` is a state."""
    shown = {name: _plain(str(value)) for name, value in facts.items() if value not in (None, "", [], {})}
    width = max(map(len, shown), default=0) + 1
    for name, value in shown.items():
        click.echo(f"{(name + ':').ljust(width)} {paint_state(value) if name == painted else value}")


def paint_state(state: str) -> str:
    """A state in its colour, where colours are wanted."""
    colour = _STATE_COLOURS.get(state)
    return click.style(state, fg=colour) if colour and wants_colours() else state


def wants_colours() -> bool:
    """Whether standard output is a terminal whose user has not refused colours (``NO_COLOR``)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def local_time(moment: datetime | None) -> str:
    """A time as the user's clock shows it."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that are set, secrets masked."""
    return {
        name: "…" if name in _SECRET_FIELDS else value for name, value in spec.items() if value not in (None, "", {})
    }


def _plain(text: str) -> str:
    # Texts come from other people's jobs: control characters could rewrite the terminal.
    return "".join(char if char.isprintable() else " " for char in text)

"""How commands show what they found: tables that fit the terminal, JSON, YAML, names.

::

    @output_option()
    def list_things(session: Session, output: str | None) -> None:
        things = session.client.list_things()
        if not echo_as(output, things, (one.name for one in things)):
            echo_table(("NAME", "SIZE"), [(one.name, size(one.size)) for one in things])
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from cloud_ml.cli.display.terminal import (
    above_the_line,
    columns,
    cut,
    pad,
    plain,
    printable,
    wants_colours,
    width_of,
)

F = TypeVar("F", bound=Callable[..., Any])

_STATE_COLOURS = {
    "Succeeded": "green",
    "Running": "green",
    "Finishing": "green",
    "Paused": "yellow",
    "Queued": "yellow",
    "Starting": "yellow",
    "Restarting": "yellow",
    "Stopping": "yellow",
    "Failed": "red",
    "Stopped": "red",
    "Degraded": "yellow",
}
_KINDS = ("table", "json", "yaml", "name")
_YAML = "cloud_ml.cli.yaml"
_SECRET_FIELDS = ("hdfs_krb_password", "hdfs_krb_keytab")


def output_option(*more: str) -> Callable[[F], F]:
    """The option ``-o/--output``: ``table``, ``json``, ``yaml``, ``name``, and ``more``, such as
    ``wide``.

    The command gets ``None`` for the usual table, and ``json`` for YAML, too: ``echo_document``
    knows which of the two was asked for.
    """
    kinds = ("table", *(one for one in more if one not in _KINDS), *_KINDS[1:])
    help_text = "Output format; a table by default."
    return click.option("-o", "--output", type=_Form(kinds), callback=_form, help=help_text)


class _Form(click.Choice[str]):
    """The form of an answer; elsewhere ``--output`` names a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and value not in self.choices and ("." in value or "/" in value):
            self.fail(
                f"{value!r} is not one of {', '.join(self.choices)}: it is the form of the answer. "
                f"To keep a log in a file: cloudml logs NAME > {value}", param, ctx,
            )  # fmt: skip
        return super().convert(value, param, ctx)


def _form(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    ctx.meta[_YAML] = value == "yaml"
    return {"table": None, "yaml": "json"}.get(value or "table", value)


def echo(text: str, *, styled: bool = False) -> None:
    """Print a line. Control characters are escaped: names may come from other people. ``styled``
    text has its own.
    """
    with above_the_line(sys.stdout):
        click.echo(text if styled else printable(text))


def is_person() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def note(text: str, *, state: str = "") -> None:
    """Tell the person in front of it something that is not the result: on standard error, in the
    colour of a state.
    """
    colour = _STATE_COLOURS.get(state) if wants_colours(sys.stderr) else None
    text = printable(text)
    with above_the_line(sys.stderr):
        click.echo(click.style(text, fg=colour) if colour else text, err=True)


def echo_as(output: str | None, found: Any, names: str | Iterable[str]) -> bool:
    """Print ``found`` as a document, or its ``names``, if that is what was asked for; else return
    ``False``.

    Args:
        output: The value of ``output_option``.
        found: JSON values, dataclasses, or a list of them.
        names: What the next command would be given to mean the same: one, or one for each line.
    """
    if output == "json":
        echo_document(_values(found))
    elif output == "name":
        on_terminal = sys.stdout.isatty()
        for name in [names] if isinstance(names, str) else names:  # a pipe gets them as they are
            echo(name, styled=not on_terminal)
    else:
        return False
    return True


def echo_document(document: Any) -> None:
    """Print a document as JSON, or as YAML if ``-o yaml`` asked for it: for people, and just as
    good for programs.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_YAML):
        from cloud_ml.cli.display.yamls import dump

        click.echo(dump(document), nl=False)
    else:
        try:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        except ValueError:
            document = _with_texts_for_nan(document)
            text = json.dumps(document, indent=2, ensure_ascii=False)
        if not text.replace(
            "\n", ""
        ).isprintable():  # such signs are escaped, and with them all that is not ASCII
            text = json.dumps(document, indent=2)
        click.echo(text)


def _with_texts_for_nan(document: Any) -> Any:
    """The document with the API's texts for numbers that JSON has not: ``"NaN"``."""
    from cloud_ml.models.tracking.metrics import to_wire

    if isinstance(document, dict):
        return {name: _with_texts_for_nan(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_with_texts_for_nan(value) for value in document]
    return to_wire(document) if isinstance(document, float) else document


def echo_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, painted: int | None = None
) -> None:
    """Print rows under a header, columns two spaces apart. Column ``painted`` shows states in their
    colour.

    On a terminal that is too narrow the widest columns are cut, with ``…``; piped output is never
    cut.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(header, *cells, strict=True)]
    if sys.stdout.isatty():
        widths = fit_widths(widths, [columns(name) for name in header], width_of(sys.stdout))
    click.echo(
        "  ".join(pad(name, width) for name, width in zip(header, widths, strict=True)).rstrip()
    )
    for row in cells:
        shown = [pad(cut(cell, width), width) for cell, width in zip(row, widths, strict=True)]
        if painted is not None:
            state = shown[painted].rstrip()
            shown[painted] = paint_state(state) + shown[painted][len(state) :]
        click.echo("  ".join(shown).rstrip())


def fit_widths(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """``widths`` of columns, two spaces apart, made to fit ``room``: always the widest one gives
    way.

    A column keeps the width of its header and at least eight, so that a very narrow terminal may
    wrap lines.
    """
    found = list(widths)
    floors = [min(width, max(low, 8)) for width, low in zip(widths, least, strict=True)]
    while sum(found) + 2 * (len(found) - 1) > room:
        givers = [i for i, width in enumerate(found) if width > floors[i]]
        if not givers:
            break
        found[max(givers, key=found.__getitem__)] -= 1
    return found


def echo_facts(facts: Mapping[str, Any], *, painted: str = "") -> None:
    """Print names and values, aligned; what is empty is left out. The value of ``painted`` is a
    state.
    """
    shown = {
        plain(name): plain(str(value))
        for name, value in facts.items()
        if value not in (None, "", [], {})
    }
    width = max(map(columns, shown), default=0) + 1
    for name, value in shown.items():
        click.echo(f"{pad(name + ':', width)} {paint_state(value) if name == painted else value}")


def paint_state(state: str) -> str:
    """A state in its colour, where colours are wanted."""
    colour = _STATE_COLOURS.get(state)
    return click.style(state, fg=colour) if colour and wants_colours() else state


def local_time(moment: datetime | None) -> str:
    """A time as the user's clock shows it."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that are set, secrets masked."""
    from cloud_ml.models.secrets.arguments import masked_arguments
    from cloud_ml.models.secrets.commands import mask_command
    from cloud_ml.models.secrets.secret import mask_variables

    if variables := spec.get("environment"):
        spec = {**spec, "environment": mask_variables(variables)}
    if arguments := spec.get("job_args"):
        spec = {**spec, "job_args": masked_arguments(arguments)}
    for field in ("prepare_command", "finish_command"):
        if command := spec.get(field):
            spec = {**spec, field: mask_command(command)}
    return {
        name: "…" if name in _SECRET_FIELDS else value
        for name, value in spec.items()
        if value not in (None, "", {})
    }


def _values(found: Any) -> Any:
    from dataclasses import is_dataclass

    from cloud_ml.models import codec

    if isinstance(found, (list, tuple)):
        return [_values(one) for one in found]
    return codec.encode(found) if is_dataclass(found) else found

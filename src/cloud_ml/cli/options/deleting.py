"""The question before something is deleted for good."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cloud_ml.cli.display.output import is_person, note

_MOST_NAMED = 5

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm_deletion(names: Sequence[str], what_goes: str = "", *, yes: bool) -> None:
    """Ask whoever sits at a terminal. A script, which nobody can ask, goes on: it names what it
    deletes.

    Args:
        names: What is to be deleted.
        what_goes: What goes with it, such as ``with its keys``.
        yes: Do not ask.

    Raises:
        Exit: The answer is no.
    """
    if yes or not is_person():
        return
    shown = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        shown += f" and {len(names) - _MOST_NAMED} more"
    if not click.confirm(f"Delete {' '.join(filter(None, (shown, what_goes)))}?", err=True):
        note("Nothing is deleted.")
        raise click.exceptions.Exit(1)

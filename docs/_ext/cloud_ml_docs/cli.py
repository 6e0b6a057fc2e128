"""Every command of ``cloudml``, as its own ``--help`` says it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cloud_ml.cli.main import cli
from cloud_ml_docs.markdown import code

_WIDTH = 80


def commands() -> str:
    """A section for each command."""
    return "\n".join(
        f"## {code(context.command_path)}\n\n```text\n{context.command.get_help(context)}\n```\n"
        for context in walk()
    )


def walk() -> Iterator[click.Context]:
    """A context for the program and each of its commands, groups before what they hold."""
    size = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    yield from _below(click.Context(cli, info_name="cloudml", **{**cli.context_settings, **size}))


def _below(context: click.Context) -> Iterator[click.Context]:
    yield context
    if not isinstance(context.command, click.Group):
        return
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        if command is not None and not command.hidden:
            yield from _below(
                click.Context(
                    command,
                    parent=context,
                    info_name=name,
                    terminal_width=_WIDTH,
                    max_content_width=_WIDTH,
                )
            )

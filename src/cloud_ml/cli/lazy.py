"""Groups that know their commands by name and import them when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.errors import CloudMlError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class MissingExtra(CloudMlError):
    """A command needs packages that are not installed."""

    code = "missing_extra"


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command elsewhere: ``module:attribute``, its line in the help, and the extra that it needs.

    ``hidden`` commands work and are not in the help.
    """

    target: str
    help: str
    extra: str = ""
    hidden: bool = False


class LazyGroup(click.Group):
    """A group of which some commands are imported when they are used. ``--help`` imports none of
    them.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (found := super().get_command(ctx, cmd_name)) is not None or cmd_name not in self.lazy:
            return found
        return _load(cmd_name, self.lazy[cmd_name])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        given, known = args[0], self.list_commands(ctx)
        spelled = ctx.token_normalize_func or str
        name = next((one for one in known if spelled(one) == spelled(given)), given)
        if name in known or given.startswith("-"):
            return super().resolve_command(ctx, [name, *args[1:]])
        from cloud_ml.cli.suggestions.unknown_words import explain_unknown_command, find_alias

        if words := find_alias(ctx.command_path, spelled(given), known):
            return super().resolve_command(ctx, [*words, *args[1:]])
        shown = [name for name, _ in self._rows(ctx)]
        hidden = [name for name in known if name not in shown]
        sentence = explain_unknown_command(ctx.command_path, given, shown, args[1:], hidden)
        raise click.UsageError(sentence, ctx=ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(name, help=text)
            for name, text in self._rows(ctx)
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows(ctx)))

    def _rows(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Name and line of help of every command that is shown; none is imported for it."""
        for name in self.list_commands(ctx):
            command = self.commands.get(name)
            if command is None:
                if not self.lazy[name].hidden:
                    yield name, self.lazy[name].help
            elif not command.hidden:
                yield name, command.get_short_help_str(limit=90)


def _load(name: str, lazy: Lazy) -> click.Command:
    module, _, attribute = lazy.target.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        # A missing module of ours is a bug, and no package to install.
        if not lazy.extra or (error.name or "").startswith("cloud_ml"):
            raise
        raise MissingExtra(
            f"`cloudml {name}` needs the package {error.name}, which is not installed",
            hint=f'Install it with: pip install "cloud-ml[{lazy.extra}]"',
        ) from error
    assert isinstance(command, click.Command)
    return command

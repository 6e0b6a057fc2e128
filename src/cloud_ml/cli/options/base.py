"""Options with further names, and options that stay out of ``--help`` because this server
refuses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.parser import _OptionParser

EXPIRES_ALIASES = ("--for", "--expires-in", "--duration", "--ttl")
"""Further names of ``--expires``: what it was called here, and as other tools call it."""
_SHOWS_ALL = "cloud_ml.cli.help_all"


class Option(click.Option):
    """An option of a command.

    Args:
        aliases: Further names, such as those of other tools. They work; help and completion leave
            them out.
        offered: False for what this server refuses: only ``--help-all`` shows it.
    """

    def __init__(
        self, *args: Any, aliases: Sequence[str] = (), offered: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = list(aliases)
        self.offered = offered

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        names = self.opts
        self.opts = [*names, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if not self.offered and not ctx.meta.get(_SHOWS_ALL):
            return None
        return super().get_help_record(ctx)


class FieldOptions:
    """Makes the options of a command whose names are those of fields.

    Args:
        aliases: Further names of the option of a field.
        not_offered: Fields that this server refuses.
    """

    def __init__(self, aliases: Mapping[str, Sequence[str]], not_offered: Collection[str]) -> None:
        self._aliases = aliases
        self._not_offered = not_offered

    def text(self, *names: str, metavar: str = "TEXT", **more: Any) -> Option:
        """An option with a value. The last name is that of the field."""
        return self._option(*names, metavar=metavar, **more)

    def flag(self, *names: str, **more: Any) -> Option:
        """An option without a value."""
        return self._option(*names, is_flag=True, **more)

    def _option(self, *names: str, **more: Any) -> Option:
        field = names[-1].removeprefix("--")
        offered = field not in self._not_offered
        return Option(list(names), aliases=self._aliases.get(field, ()), offered=offered, **more)


class Command(click.Command):
    """A command that may have options which this server does not offer: ``--help-all`` shows
    them, too.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if all(getattr(one, "offered", True) for one in self.params):
            return params
        return [*params, _HELP_ALL]


def _show_all(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Also show options that this server does not offer.",
)

"""Numbers as values of options. What is no number is refused in a plain sentence: the option, its
value, and what is allowed.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import click


class WholeNumber(click.IntRange):
    """A whole number, between bounds that are themselves allowed."""

    def __init__(self, least: int | None = None, most: int | None = None) -> None:
        super().__init__(least, most)
        if least is most is None:
            self.name = click.INT.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """``value`` as a whole number.

        Raises:
            UsageError: It is none, or not between the bounds.
        """
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            _refuse(value, param, ctx, f"a whole number{_bounds(self)}")

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()


class Number(click.FloatRange):
    """A finite number, between bounds. With ``above``, it is more than ``least``."""

    def __init__(
        self, least: float | None = None, most: float | None = None, *, above: bool = False
    ) -> None:
        super().__init__(least, most, min_open=above)
        if least is most is None:
            self.name = click.FLOAT.name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """``value`` as a number.

        Raises:
            UsageError: It is none, not finite, or not between the bounds.
        """
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            _refuse(value, param, ctx, f"a number{_bounds(self)}")
        return number

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()


def _bounds(kind: WholeNumber | Number) -> str:
    """What bounds a number, behind ``a number``; empty where nothing does."""
    least, most = kind.min, kind.max
    if least is None:
        return "" if most is None else f", at most {most:g}"
    if kind.min_open:
        return f" above {least:g}" + ("" if most is None else f", at most {most:g}")
    return f", at least {least:g}" if most is None else f" from {least:g} to {most:g}"


def _refuse(
    value: Any, param: click.Parameter | None, ctx: click.Context | None, allowed: str
) -> NoReturn:
    name = "the value"
    if param is not None:
        name = (
            max(param.opts, key=len) if param.opts[0].startswith("-") else param.human_readable_name
        )
    raise click.UsageError(f"{name} is {value!r}; allowed is {allowed}", ctx)

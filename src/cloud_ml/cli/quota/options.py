"""The words of quotas on the command line, the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cloud_ml.cli.options.base import Option
from cloud_ml.models.admin.quota import SERVICES

F = TypeVar("F", bound=Callable[..., Any])

KINDS = (*SERVICES, "total")
"""Kinds of work with limits of their own, and all of them together."""
WIRE_KINDS = {"jobs": "train", "models": "model", "dev": "dev", "total": "total"}
"""What a kind is called in ``/api/v1``."""
_SYNONYMS = {
    "train": "jobs",
    "job": "jobs",
    "model": "models",
    "services": "models",
    "all": "total",
}


class KindType(click.Choice[str]):
    """A kind of work, also by the words of ``/api/v1``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(_SYNONYMS.get(value, value), param, ctx)


def kind_option(*kinds: str) -> Callable[[F], F]:
    """The option ``-t/--type``."""
    return click.option(
        "-t",
        "--type",
        "kind",
        type=KindType(kinds),
        default="jobs",
        show_default=True,
        help="Kind of work.",
    )


def amount_options(command: F) -> F:
    """The options ``--cpu``, ``--memory`` and ``--gpu``; what is not given stays."""
    for names, aliases, metavar, text in (
        (("-g", "--gpu"), ("--gpu_limit", "--gpus"), "COUNT", "GPUs together."),
        (("-M", "--memory"), ("--memory_limit", "--mem"), "SIZE", "Memory together, such as 64G."),
        (("-c", "--cpu"), ("--cpu_limit", "--cpus"), "CORES", "Cores together, such as 16."),
    ):
        command = click.option(*names, cls=Option, aliases=aliases, metavar=metavar, help=text)(
            command
        )
    return command

"""The option ``--file`` of commands that write whole tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def file_option(command: F) -> F:
    """The option ``--file``."""
    return click.option(
        "--file",
        metavar="PATH",
        help="With -o csv or parquet: write all of it to this file; '-' is standard output.",
    )(command)


def check_form(output: str | None, file: str | None) -> None:
    """Refuse a form of the answer that does not go with the file.

    Raises:
        UsageError: It does not.
    """
    if file is not None and output not in ("csv", "parquet"):
        raise click.UsageError("--file needs -o csv or -o parquet")
    if file is None and output == "parquet":
        raise click.UsageError("-o parquet needs --file PATH; --file - is standard output")

"""``cloudml doctor``: what this machine gives to jobs, what is missing, and how to get it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.display.output import echo, echo_as, output_option
from cloud_ml.cli.display.terminal import plain, wants_colours
from cloud_ml.cli.server.group import parts_missing
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.doctor.findings import Finding

_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
_WIDTH = 13
_AREAS = ("machine", "isolation", "storage", "database", "secrets", "runtimes", "network", "client")


@click.command(
    help="Check this machine and report problems: isolation, storage, database, secrets, runtimes, "
    "network, and your own key. Say how to get what is missing. Nothing is changed. Exit code 1 if "
    "something does not work at all."
)
@click.argument("areas", nargs=-1, type=click.Choice(_AREAS), metavar="[AREA]...")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, readable=False),
    help="The server's folder of data.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="The server's settings, as TOML.",
)
@output_option()
@pass_session
def doctor(
    session: Session,
    areas: tuple[str, ...],
    data_dir: str | None,
    file: str | None,
    output: str | None,
) -> int:
    try:
        from cloud_ml import doctor as examinations
        from cloud_ml.settings import load
    except ImportError as error:
        raise parts_missing(error) from error
    settings = load(Path(file) if file else None, os.environ, {"server": {"data_dir": data_dir}})
    found: list[Finding] = []
    for area, examine in examinations.areas(settings, lambda: session.client).items():
        if areas and area not in areas:
            continue
        if output is None:
            echo(click.style(area, bold=True) if wants_colours() else area, styled=True)
        for finding in examine():
            found.append(finding)
            if output is None:
                _show(finding)
    if not echo_as(output, found, [one.name for one in found if one.verdict != "ok"]):
        echo(_summary(found))
    return 1 if any(one.verdict == "problem" for one in found) else 0


def _show(finding: Finding) -> None:
    sign, colour = _SIGNS[finding.verdict]
    painted = click.style(sign, fg=colour) if wants_colours() else sign
    echo(f"  {painted} {finding.name:{_WIDTH}} {plain(finding.says)}", styled=True)
    if finding.remedy:
        echo(f"    {'':{_WIDTH}} → {plain(finding.remedy)}")


def _summary(found: list[Finding]) -> str:
    problems = sum(one.verdict == "problem" for one in found)
    warnings = sum(one.verdict == "warning" for one in found)
    if problems:
        return f"{_count(problems, 'problem')} to fix first" + (
            f", {_count(warnings, 'warning')}" if warnings else ""
        )
    return f"ready, with {_count(warnings, 'warning')}" if warnings else "ready, nothing is missing"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")

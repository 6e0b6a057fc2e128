"""``cloudml jobs compare`` and ``cloudml runs compare``: what jobs differ in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import run_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import echo, echo_as, echo_table, note, output_option
from cloud_ml.cli.jobs.name_suggestions import near_names
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.models.tracking.comparison import ComparedFile, ComparedMetric, RunComparison

_WIDEST = 48


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=run_names)
@click.option(
    "-m",
    "--metric",
    metavar="NAME",
    help="Judge changes by their likely effect on this metric; one that sounds like an error by "
    "default.",
)
@output_option()
@pass_session
def compare(
    session: Session, names: tuple[str, ...], *, metric: str | None, output: str | None
) -> None:
    """Show what jobs and other runs differ in.

    Changes with the largest likely effect on a metric come first.

    \b
    cloudml jobs compare linear linear-2
    cloudml jobs compare linear linear-2 linear-3 --metric loss -o json

    Other runs of the experiment tell the effects. If there are too few, the command says so. NAME
    is the name or the uid of a job or of another run.
    """
    if len(names) < 2:
        raise click.UsageError("name two jobs or runs, or more")
    with near_names(session):
        found = session.client.runs.compare(*names, metric=metric)
    if echo_as(output, found, (one.name for one in found.differences)):
        return
    header = tuple(run.name.upper() for run in found.runs)
    echo_table(("CHANGE", *header, "LIKELY EFFECT"), list(_changes(found)))
    note(found.said[:1].upper() + found.said[1:] + ".")
    if found.metrics:
        echo("")
        echo_table(("METRIC", *header, "AT STEP", "LARGEST DIFFERENCE"), _metrics(found.metrics))
    echo("")
    echo_table(("RUN", *header), _runs(found))
    for line in _files(found.files):
        echo(line)
    for text in found.notes:
        note(text)


def _changes(found: RunComparison) -> Iterator[tuple[str, ...]]:
    for one in found.differences:
        effect = "-"
        if one.effect is not None and one.share is not None:
            effect = f"{one.effect:+.3g} ({one.share:.0%})"
        yield (f"{one.kind} {one.name}", *map(_short, one.values), effect)


def _metrics(metrics: Sequence[ComparedMetric]) -> list[tuple[str, ...]]:
    rows = []
    for one in metrics:
        values = one.at_step if one.step is not None else one.last
        numbers = ["-" if value is None else f"{float(value):.6g}" for value in values]
        largest = "-"
        if one.largest_difference is not None:
            largest = f"{float(one.largest_difference):.3g}"
            largest += "" if one.differs_at is None else f" at step {one.differs_at}"
        step = "last" if one.step is None else str(one.step)
        rows.append((one.name, *numbers, step, largest))
    return rows


def _runs(found: RunComparison) -> list[tuple[str, ...]]:
    runs = found.runs
    stages = list(dict.fromkeys(stage for run in runs for stage in run.stages))
    rows = [
        ("state", *(run.state for run in runs)),
        ("attempts", *(str(run.attempt) for run in runs)),
        ("ran for", *(_seconds(run.duration_s) for run in runs)),
        ("processor time", *(_seconds(run.cpu_seconds) for run in runs)),
        ("memory at most", *(figures.size(run.memory_peak_bytes) for run in runs)),
        ("outputs", *(figures.files(run.outputs) for run in runs)),
    ]
    rows += [
        (f"{stage} after", *(_seconds(run.stages.get(stage)) for run in runs)) for stage in stages
    ]
    return rows


def _files(files: Sequence[ComparedFile]) -> Iterator[str]:
    for one in files:
        yield ""
        if one.diff:
            yield one.diff.rstrip("\n")
            if one.cut:
                yield "… there is more"
        else:
            sizes = ", ".join(
                "absent" if size is None else figures.size(size) for size in one.sizes
            )
            yield f"{one.path}: {sizes}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}s"


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= _WIDEST else value[: _WIDEST - 1] + "…"

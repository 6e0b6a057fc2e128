"""``cloudml runs``: what was logged by jobs and without them. A job is its run."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cloud_ml.cli.completion.candidates import experiment_names, run_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import echo, echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.display.summary_tags import show_summaries
from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.deleting import confirm_deletion, yes_option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.options.table_file import check_form, file_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.tracking.run_names import job_or_uid
from cloud_ml.errors import NotFound

if TYPE_CHECKING:
    from cloud_ml.models.tracking.metrics import MetricPoint, MetricSeries
    from cloud_ml.models.tracking.run import Run, RunExperiment
    from cloud_ml.sdk.jobs.handles import JobHandle

_NAME = re.compile(r"[A-Za-z0-9._-]+\*?")
_SOURCES = {"event_file": "event file", "log": "log"}
_STORES = "cloud_ml.cli.mlflow_stores.commands"
_REPORTED_BY_JOBS = (
    "code does so with cloud_ml.job.report(step, loss=0.3), writes TensorBoard event files to its "
    "working folder, --output_path or --tensorboard_logdir, or prints what a --metric-pattern finds"
)
_LOGGED_TO_RUNS = (
    'a run without a job gets them with mlflow.log_metric("loss", 0.3), or with '
    "CloudMlClient().run(NAME) and its log(step, loss=0.3)"
)
_SHOWN = 4
_MOST_NAMED = 20
_LISTED = 50
_STATES = {
    "scheduled": "SCHEDULED", "queued": "SCHEDULED", "running": "RUNNING",
    "finished": "FINISHED", "succeeded": "FINISHED", "failed": "FAILED",
    "killed": "KILLED", "stopped": "KILLED",
}  # fmt: skip


@click.group(
    cls=LazyGroup,
    lazy={
        "import": Lazy(f"{_STORES}:import_runs", "Import runs from a store of MLflow."),
        "wait": Lazy(
            "cloud_ml.cli.tracking.run_wait:wait",
            "Wait until runs have ended, or all of an experiment.",
        ),
        "compare": Lazy("cloud_ml.cli.jobs.compare:compare", "Show what runs differ in."),
        "export": Lazy(f"{_STORES}:export_runs", "Export runs to a folder that MLflow reads."),
    },
)
def runs() -> None:
    """Jobs and other runs: their metrics, parameters and tags.

    Code reports metrics with cloud_ml.job.report(step, loss=0.3), or with MLflow.
    """


@runs.command("list")
@output_option("csv", "parquet")
@file_option
@click.option(
    "--experiment",
    "-e",
    metavar="NAME",
    shell_complete=experiment_names,
    help="Only of this experiment; see runs experiments.",
)
@click.option(
    "--filter",
    "text",
    metavar="FILTER",
    default="",
    help="Only those that fulfil it: metrics.loss < 0.1 and params.optimizer = 'adam'.",
)
@click.option(
    "--columns",
    cls=Option,
    aliases=("--metrics",),
    metavar="NAME,…",
    help="Metrics and parameters to show, such as loss,lr. By default some metrics.",
)
@click.option(
    "--order-by",
    multiple=True,
    metavar="KEY",
    help="Order, such as 'metrics.loss ASC'. The newest come first by default.",
)
@click.option("-s", "--state", metavar="STATE,…", help="Only in these states: running, failed, …")
@click.option("-n", "--name", metavar="NAME", help="Only with this name; 'exp*' is a beginning.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help="At most so many; 0 for all. [default: 50; with --file all]",
)
@pass_session
def list_runs(
    session: Session,
    *,
    output: str | None,
    file: str | None,
    experiment: str | None,
    text: str,
    columns: str | None,
    order_by: tuple[str, ...],
    state: str | None,
    name: str | None,
    limit: int | None,
) -> None:
    """List jobs and other runs, newest first, with the last values of metrics.

    The filter is that of MLflow. Metrics, params, tags and attributes are compared by =, !=, <, >,
    <=, >=, LIKE, ILIKE, IN, NOT IN and IS NULL, and joined by AND.
    """
    check_form(output, file)
    names = [one.strip() for one in (columns or "").split(",") if one.strip()]
    if limit is None:
        limit = 0 if file else _LISTED
    found = list(
        session.client.runs.search(
            experiment,
            _with_options(text, state, name),
            order_by=order_by,
            columns=names or None,
            limit=limit + 1 if limit else None,
        )
    )
    shown = found[:limit] if limit else found
    _show_runs(shown, names, output, file)
    if len(shown) < len(found):
        note(f"There are more than {limit}; --limit 0 shows them all.")


def _show_runs(found: list[Run], names: list[str], output: str | None, file: str | None) -> None:
    if output in ("csv", "parquet"):
        from cloud_ml.cli.tracking.run_tables import run_table, write_table

        write_table(output, file or "-", *run_table(found))
        return
    if echo_as(output, found, (run.uid for run in found)):
        return
    names = names or _usual_metrics(found)
    rows = [
        (
            run.name,
            run.experiment,
            run.state,
            local_time(run.created_at),
            *(_value(run, each) for each in names),
        )
        for run in found
    ]
    header = ("RUN", "EXPERIMENT", "STATE", "CREATED", *(each.upper() for each in names))
    echo_table(header, rows, painted=2)
    if not found:
        note("There is no such run.")


@runs.command()
@output_option()
@pass_session
def experiments(session: Session, *, output: str | None) -> None:
    """List the experiments, which group runs.

    The label experiment=NAME of a job names its experiment; mlflow.set_experiment that of others.
    """
    found = session.client.runs.experiments()
    if echo_as(output, found, (one.name for one in found)):
        return
    echo_table(
        ("EXPERIMENT", "ID", "CREATED"),
        [(one.name, one.id, _creation_time(one)) for one in found],
    )


def _creation_time(experiment: RunExperiment) -> str:
    """The experiment ``Default`` has always been there."""
    return local_time(experiment.created_at) if experiment.created_at.timestamp() else "-"


@runs.command()
@click.argument("run", shell_complete=run_names)
@output_option()
@pass_session
def describe(session: Session, run: str, *, output: str | None) -> None:
    """Show what was logged to a run, by its name or its uid. runs list -o name has the uids."""
    found = session.client.runs.describe(job_or_uid(session, run)[1])
    if echo_as(output, [found], [found.uid]):
        return
    facts = [
        ("Run", found.name), ("Uid", found.uid), ("Experiment", found.experiment),
        ("State", found.state), ("User", found.user), ("Created", local_time(found.created_at)),
    ]  # fmt: skip
    if found.ended_at is not None:
        facts.append(("Ended", local_time(found.ended_at)))
    facts += [(f"metrics.{name}", figures.number(float(value)))
              for name, value in sorted(found.metrics.items())]  # fmt: skip
    facts += [(f"params.{name}", value) for name, value in sorted(found.params.items())]
    facts += [(f"tags.{name}", value) for name, value in sorted(found.tags.items())]
    echo_table(("WHAT", "VALUE"), facts)


@runs.command()
@click.argument("names", metavar="RUN…", nargs=-1, required=True, shell_complete=run_names)
@yes_option
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete runs without a job, with their metrics, by their names or uids.

    Jobs are deleted by jobs delete.
    """
    confirm_deletion(names, "with metrics and parameters", yes=yes)
    for name in names:
        gone = session.client.runs.delete(job_or_uid(session, name)[1])
        note(f"Deleted run {gone.name} ({gone.uid}).")


@runs.command()
@click.argument("run", shell_complete=run_names)
@output_option("csv", "parquet")
@file_option
@click.option("--name", metavar="METRIC", help="Show points of this metric, such as loss.")
@click.option("--task", metavar="TASK", help="Only of this task, such as worker-0.")
@click.option(
    "--from", "from_step", type=WholeNumber(), metavar="STEP", help="With --name: the first step."
)
@click.option(
    "--to", "to_step", type=WholeNumber(), metavar="STEP", help="With --name: the last step."
)
@click.option(
    "--points",
    type=WholeNumber(2),
    default=100,
    show_default=True,
    help="With --name: at most so many. Peaks stay visible.",
)
@click.option(
    "--earlier",
    is_flag=True,
    help="With --name: only points of earlier attempts that a later one has repeated.",
)
@click.option(
    "--summaries",
    is_flag=True,
    help="Only the tags of histograms, images, audio and texts in TensorBoard event files.",
)
@pass_session
def metrics(
    session: Session,
    run: str,
    *,
    output: str | None,
    file: str | None,
    name: str | None,
    task: str | None,
    from_step: int | None,
    to_step: int | None,
    points: int,
    earlier: bool,
    summaries: bool,
) -> None:
    """Show the metrics of a run, or with --name the points of one.

    Histograms, images, audio and texts of event files follow, by their tags; --summaries shows
    these only. Look at what they have with a TensorBoard.

    Where a range has more points than --points, the lowest and the highest value of each part of it
    are shown, and its first and last point. A shorter range shows more of it. --file gets all
    points of all metrics, or of the one that --name says.
    """
    check_form(output, file)
    chosen = _Range(from_step, to_step, points, earlier)
    if summaries:
        _check_only_summaries(name, task, file, output, chosen)
        _show_summaries(session, run, output)
        return
    _check_range(name, file, output, chosen)
    job, uid = job_or_uid(session, run)
    if file is not None and output is not None:
        _write_points(session, output, file, run=(uid, run), selection=(name, task))
    elif name is None:
        _show_all_metrics(session, run, output, task, (job, uid))
    else:
        _show_points(output, name, _points_of(session, (job, uid), name, task, chosen))


class _Range(NamedTuple):
    """Which points of a metric are shown, and how many at most."""

    from_step: int | None
    to_step: int | None
    most: int
    earlier: bool

    @property
    def is_limited(self) -> bool:
        """Whether any points are left out by an option."""
        return self.from_step is not None or self.to_step is not None or self.earlier


def _check_only_summaries(
    name: str | None, task: str | None, file: str | None, output: str | None, chosen: _Range
) -> None:
    if name or task or file or chosen.is_limited or output == "csv":
        raise click.UsageError("of the other options, only -o json and -o yaml go with --summaries")


def _check_range(name: str | None, file: str | None, output: str | None, chosen: _Range) -> None:
    """Refuse options that say which points, where no metric is named or a file gets all."""
    if name is None and chosen.is_limited:
        raise click.UsageError("--from, --to and --earlier need --name, the metric that is shown")
    if name is None and file is None and output == "csv":
        raise click.UsageError(
            "-o csv needs --name, the metric whose points are printed; or --file, for all"
        )
    if file is not None and output is not None and chosen.is_limited:
        raise click.UsageError(
            "--file gets all points: --from, --to and --earlier do not go with it"
        )


def _show_all_metrics(
    session: Session,
    run: str,
    output: str | None,
    task: str | None,
    run_found: tuple[JobHandle | None, str],
) -> None:
    """The last values of all metrics of a run, then the tags of its other summaries."""
    job, uid = run_found
    client = session.client
    there = client.runs.metrics(uid) if job is None else client.train_job_metrics(job.uid)
    found = [one for one in there.items if task in (None, one.task)]
    _show_series(output, found)
    if output is None and not found:
        is_job = job is not None or client.runs.describe(uid).is_job
        note(f"{run} has reported no metrics; {_REPORTED_BY_JOBS if is_job else _LOGGED_TO_RUNS}")
    if output is None and task is None and there.summaries:
        echo("")
        show_summaries(there.summaries, (job or client.get_train_job(uid)).job)


def _points_of(
    session: Session,
    found: tuple[JobHandle | None, str],
    name: str,
    task: str | None,
    chosen: _Range,
) -> list[MetricPoint]:
    """Points of a metric: of the job, if the run has one."""
    job, uid = found
    steps: dict[str, Any] = {
        "from_step": chosen.from_step, "to_step": chosen.to_step, "most": chosen.most,
    }  # fmt: skip
    if job is None:
        return session.client.runs.points(uid, name, **steps)
    return job.points(name, task=task, earlier=chosen.earlier, **steps)


def _show_points(output: str | None, name: str, found: list[MetricPoint]) -> None:
    if output == "csv":
        from cloud_ml.cli.display.csv_tables import echo_csv

        echo_csv(("step", "at", "value"), ((one.step, one.at, float(one.value)) for one in found))
        return
    if echo_as(output, found, (figures.number(float(one.value)) for one in found)):
        return
    rows = [(str(one.step), figures.number(float(one.value)), local_time(one.at)) for one in found]
    echo_table(("STEP", name.upper(), "TIME"), rows)
    if not found:
        note("There are no points in this range.")


def _write_points(
    session: Session,
    output: str,
    file: str,
    *,
    run: tuple[str, str],
    selection: tuple[str | None, str | None],
) -> None:
    """Write all points of a run to a file, or those of the metric or task that is wanted.

    Raises:
        NotFound: The run has no such series.
    """
    from cloud_ml.cli.tracking.run_tables import point_table, write_table

    (uid, called), (name, task) = run, selection
    there = session.client.runs.series(uid)
    found = [one for one in there if name in (None, one.name) and task in (None, one.task)]
    if not found:
        names = sorted({one.name for one in there})
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        raise NotFound(
            f"{called} has reported no such metric", field="metric", value=name or task,
            allowed=", ".join(names[:_MOST_NAMED]) + more or "none: nothing was reported",
        )  # fmt: skip
    write_table(output, file, *point_table(session.client, uid, found))


def _show_series(output: str | None, found: list[MetricSeries]) -> None:
    if echo_as(output, found, (one.name for one in found)) or not found:
        return
    rows = [
        (
            one.name,
            one.task,
            str(one.count),
            figures.number(float(one.last)),
            "-" if one.min is None else figures.number(float(one.min)),
            "-" if one.max is None else figures.number(float(one.max)),
            str(one.last_step),
            local_time(one.last_at),
            _remarks(one),
        )
        for one in found
    ]
    header = ("METRIC", "TASK", "POINTS", "LAST", "MIN", "MAX", "STEP", "TIME", "REMARKS")
    echo_table(header, rows)


def _show_summaries(session: Session, run: str, output: str | None) -> None:
    job, uid = job_or_uid(session, run)
    found = session.client.runs.summaries(uid)
    if echo_as(output, found, (one.name for one in found)):
        return
    if found:
        show_summaries(found, (job or session.client.get_train_job(uid)).job)
    else:
        note(f"{run} has written no histograms, images, audio or texts to TensorBoard event files")


def _remarks(series: MetricSeries) -> str:
    remarks = [_SOURCES[series.source]] if series.source in _SOURCES else []
    if series.nan:
        remarks.append(f"{series.nan} NaN")
    if series.earlier:
        remarks.append(f"{series.earlier} written again later")
    if series.removed:
        remarks.append(f"{series.removed} points not kept any more")
    return ", ".join(remarks)


def _with_options(text: str, state: str | None, name: str | None) -> str:
    """The filter with the conditions of options."""
    conditions = [text] if text.strip() else []
    if state is not None:
        words = [word.strip().lower() for word in state.split(",") if word.strip()]
        states = {_STATES.get(word, word.upper()) for word in words}
        if not states or not states <= set(_STATES.values()):
            raise click.UsageError(f"--state is {state}; allowed is {', '.join(sorted(_STATES))}")
        listed = ", ".join(f"'{one}'" for one in sorted(states))
        conditions.append(f"attributes.status IN ({listed})")
    if name is not None:
        if not _NAME.fullmatch(name):
            raise click.UsageError(f"--name is {name}; use --filter \"run_name LIKE '…'\" for it")
        how, value = ("LIKE", name.replace("*", "%")) if "*" in name else ("=", name)
        conditions.append(f"attributes.run_name {how} '{value}'")
    return " AND ".join(conditions)


def _usual_metrics(found: list[Run]) -> list[str]:
    """The metrics that most of the runs have, a few of them."""
    counts = Counter(name for run in found for name in run.metrics)
    return sorted(name for name, _ in counts.most_common(_SHOWN))


def _value(run: Run, name: str) -> str:
    if name in run.metrics:
        return figures.number(float(run.metrics[name]))
    return run.params.get(name, "-")

"""``cloudml hp``: studies, which search for the arguments with which a job does best."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from cloud_ml.cli.completion.candidates import names_of
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    local_time,
    note,
    output_option,
)
from cloud_ml.cli.display.study_tables import (
    echo_trials,
    echo_trials_csv,
    first_cell,
    sort_trials,
)
from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.options.numbers import Number, WholeNumber
from cloud_ml.cli.resource_group import json_or_text, resource_group
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.studies.documents import changes_of
from cloud_ml.models.studies.study import (
    STUDIES,
    Study,
    Trial,
    objectives_of,
    planned_trials,
    shown_parameters,
    shown_value,
    trial_label,
)

studies = resource_group(STUDIES)
assert isinstance(studies, LazyGroup)
studies.lazy |= {
    "submit": Lazy("cloud_ml.cli.studies.submit:submit", "Submit a study."),
    "importance": Lazy(
        "cloud_ml.cli.studies.readouts:importance",
        "Show how much each parameter of a study matters.",
    ),
    "plot": Lazy(
        "cloud_ml.cli.studies.readouts:plot",
        "Draw the trials of a study in the terminal, or into an HTML, SVG or PNG file.",
    ),
    "best": Lazy(
        "cloud_ml.cli.studies.readouts:best",
        "Show the best trial of a study, or its Pareto front.",
    ),
    "proxy": Lazy(
        "cloud_ml.cli.studies.proxy:proxy",
        "Let Optuna's GrpcStorageProxy work on studies kept here.",
    ),
    "run": Lazy("cloud_ml.cli.studies.run:run", "Run the trials of a study on this machine."),
    "curves": Lazy(
        "cloud_ml.cli.studies.readouts:curves",
        "Show the values that trials reported while they ran.",
    ),
}


@studies.command("describe", help="Show a study: what it searches, and what it has found.")
@click.argument("name", shell_complete=names_of(STUDIES))
@output_option()
@pass_session
def describe(session: Session, name: str, output: str | None) -> None:
    """Print the facts of a study; ``-o json`` has its job and its trials, too."""
    study = session.client.studies.describe(name)
    if echo_as(output, study, study.name):
        return
    facts = {
        "Name": study.name,
        "State": "Deleting" if study.deleting else study.phase,
        "Message": study.message,
        "Objective": study.objective,
        "Best": "" if study.best is None else _in_words(study, study.best),
        **_front_facts(study),
        "Trials": _counts(study),
        "Algorithm": _algorithm_of(study),
        "Population": _population_of(study),
        "Stopper": _stopper_of(study),
        "Warm start": _warm_start_of(study),
        "Repeats": f"{study.repeats} of each of the best {study.repeat_best}"
        if study.repeats
        else "",
        "Checkpoints": _checkpoints_of(study),
        "Target": "" if study.target is None else f"{study.target:g}",
        "Max time": study.max_time or "",
        "Most failures": study.max_failed or "none",
        "Trainer": "a loop of yours"
        if study.local
        else f"{study.job.get('trainer_uri')} {study.job.get('module_name')}",
        "Owner": study.owner,
        "Created": local_time(study.created_at),
        "Changed": local_time(study.updated_at),
    }
    space = {f"Space {name}": json.dumps(values) for name, values in study.space.items()}
    constraints = {"Constraints": ", ".join(study.constraints)}
    echo_facts(facts | space | constraints, painted="State")
    note(f"Its trials: cloudml hp trials {study.name}")


def _front_facts(study: Study) -> dict[str, str]:
    """What a study with several objectives has found."""
    if not study.front:
        return {}
    worst = ", ".join(
        f"{metric} {value:g}"
        for (metric, _), value in zip(objectives_of(study), study.reference, strict=False)
    )
    volume = "not computed" if study.hypervolume is None else f"{study.hypervolume:g}"
    return {
        "Pareto front": f"{study.front} trials; list them: cloudml hp best {study.name}",
        "Hypervolume": f"{volume}, up to the worst completed: {worst}",
    }


def _counts(study: Study) -> str:
    """How many trials there are of each state: one that was stopped has found nothing."""
    states = ", ".join(f"{count} {state}" for state, count in study.states.items())
    whole = f"{study.ended} of {planned_trials(study)} have ended, {study.parallel} at a time"
    return f"{whole} ({states})" if states else whole


def _stopper_of(study: Study) -> str:
    options = ", ".join(f"{name} {value}" for name, value in study.stopper_options.items())
    return f"{study.stopper}: {options}" if study.stopper else ""


def _checkpoints_of(study: Study) -> str:
    """Whose checkpoints are kept, and how many trials have none any more."""
    counts = Counter(trial.checkpoints for trial in study.trials)
    if study.keep_checkpoints == "all" and not counts["Removed"]:
        return ""
    in_use = f", {counts['InUse']} in use" if counts["InUse"] else ""
    removed = f"of {counts['Removed']} trials they are removed{in_use}"
    return f"kept of {kept_text(study)}; {removed}"


def kept_text(study: Study) -> str:
    """Of which trials the checkpoints are kept: ``the 3 best trials``."""
    kept = study.keep_checkpoints
    if kept == "best":
        return "the Pareto front" if len(study.objectives) > 1 else "the best trial"
    if kept == "none":
        return "no trial"
    return f"the {kept} best trials" if isinstance(kept, int) else "all trials"


def _warm_start_of(study: Study) -> str:
    if not study.warm_start:
        return ""
    return f"{study.prior_trials} trials of {', '.join(study.warm_start)}"


def _algorithm_of(study: Study) -> str:
    """The algorithm with its options. Those of a population have a line of their own."""
    options = {} if "population" in study.algorithm_options else study.algorithm_options
    shown = [f"{name} {json.dumps(value)}" for name, value in options.items()]
    return ", ".join([study.algorithm, *shown, f"seed {study.seed}"])


def _population_of(study: Study) -> str:
    options = dict(study.algorithm_options)
    if "population" not in options:
        return ""
    size = options.pop("population")
    return f"{size} members, {', '.join(f'{name} {value}' for name, value in options.items())}"


def _in_words(study: Study, trial: Trial) -> str:
    of = trial_label(trial)
    return f"{shown_value(trial)} of {of} ({shown_parameters(trial.parameters)})"


@studies.command("trials", help="List the trials of a study.")
@click.argument("name", shell_complete=names_of(STUDIES))
@click.option(
    "--sort",
    default="number",
    metavar="number|value|METRIC",
    help="Sort by this; value is the first objective.",
)
@click.option("--limit", type=WholeNumber(1), metavar="N", help="List only the first N of them.")
@output_option("csv")
@pass_session
def trials(
    session: Session, name: str, *, sort: str, limit: int | None, output: str | None
) -> None:
    """List the trials, with their parameters and values."""
    study = session.client.studies.describe(name)
    found = sort_trials(study, sort)[:limit]
    if output == "csv":
        echo_trials_csv(study, _with_values(session, study, found))
    elif not echo_as(output, found, map(first_cell, found)):
        echo_trials(study, _with_values(session, study, found))
        if len(found) < len(study.trials):
            note(f"These are {len(found)} of {len(study.trials)} trials.")


class _Extend(click.Command):
    """Answers ``hp extend NAME 20`` with the option that says how many."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if error.param is None or error.param.name != "trials":
                raise
            name = words[0]
            count = next((word for word in words[1:] if word.isdecimal()), "N")
            raise click.UsageError(
                f"say how many more trials to run: cloudml hp extend {name} --trials {count}", ctx
            ) from None


@studies.command("extend", cls=_Extend, help=STUDIES.actions["extend"])
@click.argument("name", shell_complete=names_of(STUDIES))
@click.option("--trials", type=WholeNumber(), required=True, metavar="N", help="How many more.")
@click.option("--target", type=Number(), help="End when a trial has this value or a better one.")
@click.option(
    "--max-time",
    metavar="TIME",
    help="End when the study is so old, such as 2h; a bare number is seconds.",
)
@click.option(
    "-s",
    "--space",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter that changes or is new, as for submit; NAME=null takes it away. Repeatable.",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="COMPARISON",
    help="What holds from now on, in place of the constraints of before. Repeatable.",
)
@pass_session
def extend(
    session: Session,
    name: str,
    *,
    trials: int,
    target: float | None,
    max_time: str | None,
    space: tuple[str, ...],
    constraints: tuple[str, ...],
) -> None:
    """Run more trials. The target and the limit of time of before hold no more."""
    before = session.client.studies.describe(name).max_trials
    study = session.client.studies.extend(
        name,
        trials,
        target=target,
        max_time=max_time,
        space=changes_of(space),
        constraints=constraints or None,
    )
    echo(f"{study.name} has {planned_trials(study)} trials now, {study.ended} of which have ended")
    for one in study.dropped:
        note(f"Dropped, as the changed space excludes it: {one}")
    if not study.dropped and study.max_trials < before + trials:
        note("There are no more combinations of its parameters.")


@studies.command("enqueue", help=STUDIES.actions["enqueue"])
@click.argument("name", shell_complete=names_of(STUDIES))
@click.argument("values", nargs=-1, required=True, metavar="PARAMETER=VALUE...")
@pass_session
def enqueue(session: Session, name: str, values: tuple[str, ...]) -> None:
    """Run one trial with these parameters next."""
    trial: dict[str, Any] = {}
    for text in values:
        parameter, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r} is not PARAMETER=VALUE")
        trial[parameter] = json_or_text(value)
    study = session.client.studies.enqueue(name, [trial])
    echo(f"{study.name} has {planned_trials(study)} trials now; this one comes next")


@studies.command("keep", help=STUDIES.actions["keep"])
@click.argument("name", shell_complete=names_of(STUDIES))
@click.argument("kept", metavar="all|best|N|none")
@pass_session
def keep(session: Session, name: str, kept: str) -> None:
    """Keep the checkpoints of all trials, of the best, of the N best, or of none from now on."""
    study = session.client.studies.keep_checkpoints(name, kept)
    echo(f"{study.name} keeps the checkpoints of {kept_text(study)}")
    if study.keep_checkpoints != "all":
        note("Those of other trials are removed soon, unless somebody refers to them.")


def _with_values(session: Session, study: Study, found: Sequence[Trial]) -> Sequence[Trial]:
    """The trials, those that run with the value that they reported last."""
    if study.local or not any(trial.state == "Running" for trial in found):
        return found
    metric, _ = objectives_of(study)[0]
    jobs = session.client.list_train_jobs(name=f"{study.name}-hp-*", metrics=[metric])
    values = {job.name: (job.metrics or {}).get(metric) for job in jobs}
    return [
        replace(trial, value=value)
        if trial.state == "Running" and isinstance(value := values.get(trial.job), float)
        else trial
        for trial in found
    ]

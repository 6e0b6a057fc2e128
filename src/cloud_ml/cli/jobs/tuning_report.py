"""``cloudml jobs hp``: the report of a tuning, as the original tool prints it."""

from __future__ import annotations

import re

import click

from cloud_ml.cli.completion.candidates import names_of
from cloud_ml.cli.display.output import echo, echo_as, output_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import NotFound
from cloud_ml.models.studies.study import STUDIES, Study, Trial, objectives_of, values_of

_TRIAL = re.compile(r"(.+)-hp-[0-9]+")


@click.command("hp", help="Show a study and its trials; takes the name of the study or of a trial.")
@click.argument("name", shell_complete=names_of(STUDIES))
@output_option()
@pass_session
def hp(session: Session, name: str, output: str | None) -> None:
    """Print the goal, the best trial, and all trials."""
    study = _find(session, name)
    if echo_as(output, study, study.name):
        return
    goals = ["MAXIMIZE" if is_max else "MINIMIZE" for _, is_max in objectives_of(study)]
    echo(f"Goal: {', '.join(goals)}")
    echo(f"Trial count: {study.max_trials}")
    if study.best_trials:
        numbers = ", ".join(str(trial.number) for trial in study.best_trials)
        echo(f"Best trials (Pareto front): {numbers}")
    else:
        echo("Best trial:")
        _report(study.best)
    for trial in study.trials:
        echo(f"Trial {trial.number}:")
        _report(trial)


def _find(session: Session, name: str) -> Study:
    studies = session.client.resources(STUDIES)
    try:
        return studies.describe(name)
    except NotFound:
        if (trial := _TRIAL.fullmatch(name)) is None:
            raise
        return studies.describe(trial[1])


def _report(trial: Trial | None) -> None:
    if trial is None:
        echo("         None has completed yet.")
        return
    folder = [] if trial.output_path is None else [f"--output_path={trial.output_path}"]
    words = [*folder, *(f"--{name}={value}" for name, value in trial.parameters.items())]
    echo(f"         Metrics: {', '.join(str(value) for value in values_of(trial))}")
    echo(f"         Params: {' '.join(words)}")
    echo(f"         Step: {trial.step}")
    echo(f"         State: {trial.state}")

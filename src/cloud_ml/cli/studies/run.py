"""``cloudml hp run --local``: trials of a study as processes of this machine."""

from __future__ import annotations

import re
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from cloud_ml.cli.completion.candidates import algorithm_names, files
from cloud_ml.cli.display.output import echo, note
from cloud_ml.cli.display.study_tables import echo_trials
from cloud_ml.cli.exit_codes import JOB_FAILED
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.options.numbers import Number, WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.studies.documents import study_of
from cloud_ml.models.studies.study import STUDIES, Study, objectives_of

_LONGEST_NAME = 40


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("script", shell_complete=files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--local", is_flag=True, help="Run the trials on this machine.")
@click.option("-n", "--name", help="Name of the study; one that is there goes on.")
@click.option(
    "-f", "--file", metavar="FILE", shell_complete=files, help="Study file, YAML or JSON."
)
@click.option(
    "-s",
    "--space",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter: lr=0.0001:0.1:log, layers=1:4:int, or optimizer=adam,sgd. Repeatable.",
)
@click.option(
    "--objective", multiple=True, metavar="METRIC:GOAL", help="Such as loss:min, accuracy:max."
)
@click.option(
    "--algorithm",
    metavar="NAME",
    shell_complete=algorithm_names,
    help="auto by default; or gp, tpe, optuna:TPESampler and others. -f has algorithm_options.",
)
@click.option("--stopper", metavar="NAME", help="Ends trials early that do badly, such as asha.")
@click.option(
    "--parameters-as",
    type=click.Choice(["arguments", "environment", "file"]),
    help="How SCRIPT gets its parameters; see cloudml hp submit.",
)
@click.option(
    "--trials", "max_trials", type=WholeNumber(), metavar="N", help="How many trials in all."
)
@click.option("--parallel", type=WholeNumber(1, 100), default=1, help="How many at a time.")
@click.option(
    "--seed", type=WholeNumber(), metavar="N", help="The same seed gives the same trials."
)
@click.option("--python", metavar="PROGRAM", help="Interpreter for a .py file; python by default.")
@click.option(
    "--grace",
    type=Number(0, 3600),
    default=10.0,
    metavar="SECONDS",
    help="So long may a trial take to end after SIGTERM.",
)
@pass_session
def run(
    session: Session,
    /,
    *,
    script: str,
    arguments: tuple[str, ...],
    local: bool,
    name: str | None,
    file: str | None,
    parallel: int,
    python: str | None,
    grace: float,
    **options: Any,
) -> int:
    """Run the trials of a study on this machine.

    Each trial runs SCRIPT with ARGUMENTS and its parameters: python train.py --lr=0.01. Options of
    this command come before SCRIPT. The value of a trial is what it reports by
    cloud_ml.job.report, or prints, such as loss: 0.25.

    \b
    cloudml hp run --local -s lr=0.001:1:log --trials 20 train.py
    """
    from cloud_ml.cli.studies.local_trials import LocalRun, LocalTrials

    if not local:
        raise click.UsageError(
            "hp run takes --local. Trials that run on the server are submitted: cloudml hp submit"
        )
    if not Path(script).is_file():
        raise click.UsageError(f"there is no file {script}")
    new = study_of(file, name or _name_of(script), {**options, "parallel": parallel}, local=True)
    if not new.space and not new.trials and name is None:
        raise click.UsageError("-s NAME=VALUES or -f FILE say what to try")
    study = session.client.studies.local(new.name, new.space, **_of_new(new))
    described = study.describe()
    metrics = [metric for metric, _ in objectives_of(described)]
    note(f"The study is {study.name}. Ctrl-C stops it and the trials that run.")
    command = _command(script, python)
    local_run = LocalRun(
        [*command, *arguments],
        metrics,
        grace,
        _echo_line,
        options["parameters_as"] or described.parameters_as,
    )
    code = 0
    try:
        LocalTrials(study, local_run).run_all(parallel)
    except KeyboardInterrupt:
        note(f"Go on: cloudml hp run --local -n {study.name} {script}")
        code = INTERRUPTED
    described = study.describe()
    echo_trials(described, described.trials)
    echo(f"{study.name}: {_summary(described)}")
    return code or (JOB_FAILED if described.phase in STUDIES.failed else 0)


def _of_new(new: Any) -> dict[str, Any]:
    names = (
        "constraints",
        "parameters_as",
        "objective",
        "algorithm",
        "algorithm_options",
        "max_trials",
        "stopper",
        "stopper_options",
        "target",
        "seed",
        "trials",
    )
    return {name: getattr(new, name) for name in names}


def _name_of(script: str) -> str:
    """A name that no other study has."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")[:_LONGEST_NAME]
    stem = words if words[:1].isalpha() else f"study-{words}".rstrip("-")
    return f"{stem.rstrip('-')}-{secrets.token_hex(3)}"


def _command(script: str, python: str | None) -> list[str]:
    """The program of a trial: the interpreter of a ``.py`` file, else the file itself."""
    if Path(script).suffix != ".py":
        return [str(Path(script).resolve())]
    found = python or shutil.which("python") or shutil.which("python3") or sys.executable
    return [found, script]


def _echo_line(number: int, text: str) -> None:
    echo(f"[{number}] {text}")


def _summary(study: Study) -> str:
    best = study.best
    if best is None:
        return study.message or f"{study.ended} trials have ended"
    value = "" if best.value is None else f"{best.value:g}"
    return f"the best is trial {best.number} with {value}"

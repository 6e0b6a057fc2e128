"""``cloudml hp run --local``: trials of a study as processes of this machine."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.completion.candidates import algorithm_names, files
from cloud_ml.cli.display.output import echo, note
from cloud_ml.cli.display.study_tables import echo_trials
from cloud_ml.cli.exit_codes import JOB_FAILED
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import Number, WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.studies.documents import study_of
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.study import STUDIES, NewStudy, Study, objectives_of
from cloud_ml.sdk.waiting import wait_for_end

if TYPE_CHECKING:
    from cloud_ml.sdk.ask_tell import LocalStudy
    from cloud_ml.sdk.studies import Studies

_LONGEST_NAME = 40
_MOST_PARALLEL = 100
_USUAL_GRACE_S = 10.0
_OF_JOBS = {"repeats": 0, "repeat_best": 3, "keep_checkpoints": "all"}
"""Fields that only trials that are jobs can have, and what they are elsewhere."""


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
    "--trials",
    "max_trials",
    cls=Option,
    aliases=("--max_trials",),
    type=WholeNumber(),
    metavar="N",
    help="How many trials in all.",
)
@click.option(
    "--parallel", type=WholeNumber(1, _MOST_PARALLEL), help="How many at a time; 1 by default."
)
@click.option(
    "--seed", type=WholeNumber(), metavar="N", help="The same seed gives the same trials."
)
@click.option("--python", metavar="PROGRAM", help="Interpreter for a .py file; python by default.")
@click.option(
    "--grace",
    type=Number(0, 3600),
    default=_USUAL_GRACE_S,
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
    parallel: int | None,
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
    own_name = _name_of(script)
    new = study_of(file, name, {**options, "parallel": parallel}, local_name=own_name)
    if not new.space and not new.trials and new.name == own_name:
        raise click.UsageError("-s NAME=VALUES or -f FILE say what to try")
    _check_local(new)
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
        LocalTrials(study, local_run).run_all(new.parallel)
        described = _wait_for_end(session.client.studies, study)
    except KeyboardInterrupt:
        again = {
            "-n": study.name,
            "--parameters-as": options["parameters_as"],
            "--parallel": new.parallel if new.parallel > 1 else None,
            "--python": python,
            "--grace": f"{grace:g}" if grace != _USUAL_GRACE_S else None,
        }
        note(f"Go on: {_shell_command(again, [script, *arguments])}")
        code = INTERRUPTED
        described = study.describe()
    echo_trials(described, described.trials)
    if described.phase in STUDIES.failed:
        echo(f"{study.name} is {described.phase}: {described.message}")
        return code or JOB_FAILED
    if code == 0:
        _note_running(described)
    echo(f"{study.name}: {_summary(described)}")
    return code


def _note_running(study: Study) -> None:
    """Name trials that other processes run. Nobody knows whether those were killed."""
    running = [str(trial.number) for trial in study.trials if trial.state == "Running"]
    if not running:
        return
    note(
        f"Other processes run trials of {study.name}: {', '.join(running)}. If they are gone, "
        f"cloudml hp stop {study.name} ends the study, and in Python "
        f"client.studies.local({study.name!r}).tell({running[0]}, state='failed') one trial."
    )


def _check_local(new: NewStudy) -> None:
    """Refuse what a study has only if its trials are jobs.

    Raises:
        InvalidRequest: Names the field of the file.
    """
    for field, usual in _OF_JOBS.items():
        if (value := getattr(new, field)) != usual:
            raise refuse(field, value, f"{usual}, as the trials run on this machine")
    if not 1 <= new.parallel <= _MOST_PARALLEL:
        raise refuse("parallel", new.parallel, f"1 to {_MOST_PARALLEL}")


def _wait_for_end(studies: Studies, study: LocalStudy) -> Study:
    """The study when no more becomes of it. It ends some moments after its last trial, unless other
    processes run trials of it, or it is paused.
    """
    return wait_for_end(
        study.describe(),
        lambda last, wait_s: studies.describe(last.uid, newer_than=last.revision, wait_s=wait_s),
        state=lambda last: f"{last.name} is still {last.phase}",
        ended=lambda last: not _is_ending(last),
        timeout=None,
    )


def _is_ending(study: Study) -> bool:
    """Whether the server is about to end a study: nobody has anything to do for it."""
    if study.phase in STUDIES.succeeded | STUDIES.failed or study.ended < len(study.trials):
        return False
    return study.phase == "Stopping" or (
        study.phase == "Running" and len(study.trials) >= study.max_trials
    )


def _shell_command(options: Mapping[str, object], words: Sequence[str]) -> str:
    """A command that runs the trials of a study: with those options that are given."""
    given = (
        word for name, value in options.items() if value is not None for word in (name, str(value))
    )
    return shlex.join(["cloudml", "hp", "run", "--local", *given, *words])


def _of_new(new: NewStudy) -> dict[str, Any]:
    names = (
        "constraints",
        "parameters_as",
        "objective",
        "algorithm",
        "algorithm_options",
        "max_trials",
        "parallel",
        "max_failed",
        "same_failures",
        "stopper",
        "stopper_options",
        "target",
        "max_time",
        "seed",
        "trials",
        "warm_start",
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

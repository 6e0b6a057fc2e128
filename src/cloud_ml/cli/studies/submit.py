"""``cloudml hp submit``: a study of code of this machine, or of a file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cloud_ml.cli.completion.candidates import algorithm_names, files, names_of
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    note,
    output_option,
)
from cloud_ml.cli.display.study_tables import echo_trials, sort_trials
from cloud_ml.cli.exit_codes import JOB_FAILED
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.jobs.defaults import name_for
from cloud_ml.cli.jobs.launchers import check_no_launcher
from cloud_ml.cli.jobs.submit_arguments import (
    SubmitCommand,
    ends_with_code,
    environment_options,
    given_behind,
    given_pairs,
)
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import Number, WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.studies.documents import study_of
from cloud_ml.errors import AlreadyExists, InvalidRequest
from cloud_ml.models.common import check_name
from cloud_ml.models.studies.study import STUDIES, NewStudy, Study

_WORDS = 3
_OWN = frozenset({"name", "job", "trials", "local"})


@click.command("submit", cls=SubmitCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [MODULE] [TRAINER] [-- ARGS]")
@click.option("-n", "--name", "named", metavar="NAME", help="The same as NAME.")
@click.option(
    "-f",
    "--file",
    "--filename",
    metavar="FILE",
    shell_complete=files,
    help="YAML or JSON with the fields of the study, of the original client, or of an Experiment "
    "of Katib; - reads standard input.",
)
@click.option(
    "-m",
    "--module",
    "--module_name",
    "module_name",
    help="Module that a trial runs; found in local code if there is one.",
)
@click.option(
    "-u",
    "--trainer",
    "--trainer_uri",
    "trainer_uri",
    metavar="URI",
    shell_complete=files,
    help="Its code: fds://…, or a local folder or file to upload.",
)
@click.option("-a", "--job_args", metavar="ARGS", help="Arguments that all trials have.")
@click.option("-F", "--framework", metavar="NAME", help="Such as tensorflow; else detected.")
@click.option("-c", "--cpu_limit", metavar="CORES", help="CPU limit of a trial, such as 0.5.")
@click.option("-M", "--memory_limit", metavar="SIZE", help="Memory limit of a trial.")
@click.option(
    "--output-path",
    "output_path",
    cls=Option,
    aliases=("--output_path",),
    metavar="URI",
    help="Where trials write results, each into URI/NUMBER: sets CLOUDML_OUTPUT_PATH, and "
    "--output_path if your code has it.",
)
@environment_options
@click.option(
    "-s",
    "--space",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter: lr=0.0001:0.1:log, layers=1:4:int, or optimizer=adam,sgd. Repeatable.",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="COMPARISON",
    help="What holds between parameters: 'a < b', 'layers * width <= 4096'. Repeatable.",
)
@click.option(
    "--parameters-as",
    type=click.Choice(["arguments", "environment", "file"]),
    help="How trials get their parameters: --lr=0.1 (default), a variable lr, or a JSON file whose "
    "path is $CLOUDML_PARAMETERS and {parameters_file} in arguments.",
)
@click.option(
    "--objective",
    multiple=True,
    metavar="METRIC:GOAL",
    help="Such as loss:min, accuracy:max. Repeat it for up to four objectives.",
)
@click.option(
    "--algorithm",
    metavar="NAME",
    shell_complete=algorithm_names,
    help="auto by default; or gp, tpe, optuna:TPESampler and others. -f has algorithm_options.",
)
@click.option(
    "--population",
    type=WholeNumber(),
    metavar="N",
    help="Members of the population of pbt; 8 by default. -f has its other options.",
)
@click.option(
    "--metric-pattern",
    "metric_patterns",
    multiple=True,
    metavar="NAME|REGEX",
    help="Find metrics in the log of a trial, as for cloudml jobs submit. By default, lines such as "
    "loss: 0.25 or loss=0.25 give the objective. Repeatable.",
)
@click.option(
    "--stopper",
    metavar="NAME",
    help="Stop bad trials early: median, percentile, asha, hyperband, threshold or plateau; "
    "-f has their options.",
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
@click.option("--parallel", type=WholeNumber(), metavar="N", help="How many run at a time.")
@click.option("--target", type=Number(), help="End when a trial has this value or a better one.")
@click.option(
    "--max-time",
    metavar="TIME",
    help="End when the study is so old, such as 2h; a bare number is seconds.",
)
@click.option(
    "--max-failed",
    type=WholeNumber(),
    metavar="N",
    help="Fail when more trials fail; 3 by default.",
)
@click.option(
    "--warm-start",
    multiple=True,
    metavar="NAME",
    shell_complete=names_of(STUDIES),
    help="Learn from the trials of this earlier study, too. Repeatable.",
)
@click.option(
    "--repeats",
    type=WholeNumber(),
    metavar="N",
    help="At the end, run each of the best trials N times again, and compare their means.",
)
@click.option(
    "--repeat-best", type=WholeNumber(), metavar="K", help="Repeat the K best trials; 3 by default."
)
@click.option(
    "--keep-checkpoints",
    metavar="all|best|N|none",
    help="Keep the checkpoints of all trials (default), of the best, of the N best, or of none.",
)
@click.option(
    "--seed", type=WholeNumber(), metavar="N", help="The same seed gives the same trials."
)
@click.option("-W", "--watch", is_flag=True, help="Wait for the end, and list the trials.")
@output_option()
@pass_session
def submit(
    session: Session,
    /,
    *,
    words: tuple[str, ...],
    named: str | None,
    file: str | None,
    output_path: str | None,
    environment: tuple[str, ...],
    environment_files: tuple[Path, ...],
    labels: tuple[str, ...],
    watch: bool,
    output: str | None,
    **options: Any,
) -> int:
    """Submit a study. Code of this machine is uploaded.

    MODULE and TRAINER are the same as -m and -u. Options take the place of what the file says. All
    trials have the ARGS, and their parameters behind them.

    \b
    cloudml hp submit -f study.yaml --watch
    cloudml hp submit rates train.py -s lr=0.001:1:log -- --epochs 5
    """
    name, module, trainer = read_words(words, options, from_file=file is not None)
    options["module_name"] = _one_of("MODULE", module, "-m", options["module_name"])
    options["trainer_uri"] = _one_of("TRAINER", trainer, "-u", options["trainer_uri"])
    name = _one_of("NAME", name, "-n", named)
    if name is None and file is None and options["trainer_uri"] is not None:
        name = name_for(options["trainer_uri"])
    if arguments := given_behind():
        if options["job_args"] is not None:
            raise click.UsageError("arguments are given with -a and behind --; give them once")
        options["job_args"] = arguments
    new = study_of(file, name, options)
    job: dict[str, Any] = {} if output_path is None else {"output_path": output_path}
    job |= given_pairs(new.job, environment, labels, environment_files)
    new = replace(new, job={**new.job, **job})
    try:
        study = _send(session, new)
    except AlreadyExists as error:
        error.hint = error.hint or (
            f"Run more of its trials: cloudml hp extend {new.name} --trials N · remove it: cloudml "
            f"hp delete {new.name}"
        )
        raise
    if not watch:
        if not echo_as(output, study, study.name):
            echo(f"{study.name} is submitted ({study.phase})")
            note(f"Follow it: cloudml hp trials {study.name}")
        return 0
    note(f"{study.name} is submitted. Ctrl-C stops waiting, not the study.")
    try:
        study = session.client.studies.wait(study.name)
    except KeyboardInterrupt:
        return INTERRUPTED
    if not echo_as(output, study, study.name):
        echo_trials(study, sort_trials(study, "value"))
        echo(f"{study.name} is {study.phase}: {study.message}")
    return 0 if study.phase in STUDIES.succeeded else JOB_FAILED


def read_words(
    words: Sequence[str], options: Mapping[str, Any], *, from_file: bool
) -> list[str | None]:
    """Name, module and trainer; the last of fewer words is the trainer if it looks like code."""
    check_no_launcher("cloudml hp submit", [*words, *given_behind()])
    if len(words) > _WORDS:
        raise click.UsageError(
            f"there are more words than a name, a module and a trainer: {shlex.join(words)}; "
            "arguments of the trials stand behind --"
        )
    found: list[str | None] = [*words]
    missing = _WORDS if options["trainer_uri"] is None and not from_file else 0
    trainer = found.pop() if ends_with_code(words, missing) else None
    found += [None] * (_WORDS - 1 - len(found))
    return [*found, trainer] if len(found) < _WORDS else found


def _one_of(word: str, given: str | None, option: str, other: str | None) -> str | None:
    if None not in (given, other) and given != other:
        raise click.UsageError(f"{word} is {given!r}, and {option} is {other!r}; give one of them")
    return given if other is None else other


def _send(session: Session, new: NewStudy) -> Study:
    """Submit a study. What is wrong with it is named by its field."""
    from cloud_ml.cli.jobs.sending import sending, with_recipe_of_code
    from cloud_ml.models import codec
    from cloud_ml.models.jobs.train_job import TrainJob

    check_name("name", new.name)
    uri = new.job.get("trainer_uri")
    if new.local or not isinstance(uri, str) or "://" in uri:
        return session.client.studies.create(new)
    if "job_name" in new.job:
        raise InvalidRequest(
            "job.job_name is set; trials have names of their own",
            field="job.job_name",
            allowed="leave it out",
        )
    job = codec.decode(TrainJob, {**new.job, "job_name": new.name}, path="job")
    job = with_recipe_of_code(job, "job.recipe")
    _note_unread_parameters(uri, new)
    options = {key: value for key, value in vars(new).items() if key not in _OWN}
    with sending(uri) as progress:
        return session.client.studies.submit(job, trials=new.trials, progress=progress, **options)


def _note_unread_parameters(uri: str, new: NewStudy) -> None:
    """Trials of a misspelt parameter are all the same, and none of them fails."""
    from cloud_ml.models.paths.local import local_path
    from cloud_ml.sdk.trainers.unread_parameters import unread_parameters

    names = dict.fromkeys((*(new.space or {}), *(name for trial in new.trials for name in trial)))
    if unread := unread_parameters(local_path(uri), names):
        listed = ", ".join(unread)
        note(f"Note: no file of {uri} mentions {listed}. Trials only differ if a library reads it.")

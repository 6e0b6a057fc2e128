"""Whether a name is that of a job or of a model service, and the commands of either kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient

JOB, SERVICE = "jobs", "models"
NOUNS: Mapping[str, str] = {
    **dict.fromkeys(("job", "jobs", "pod", "pods", "run", "runs"), JOB),
    **dict.fromkeys(
        ("model", "models", "service", "services", "svc", "deployment", "deployments"), SERVICE
    ),
}
"""Words that tell the kind before a name, as in ``describe job NAME`` and ``logs job/NAME``."""
_TASK_OF_SLURM = re.compile(r"(.+)_([0-9]+)")
_LOOKED_AT = 1000
_NEVER_RUNS = ("Saved", "Stopped", "Failed")


@dataclass(frozen=True)
class Target:
    """What a name stands for: the group of its commands, the words that name it, its phase."""

    group: str
    words: tuple[str, ...]
    phase: str = ""
    running: bool = False


def read_names(
    ctx: click.Context, commands: Mapping[str, str], words: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The names among ``words``, and the other words, as the first of ``commands`` reads them that
    can.

    Args:
        ctx: The context of the command that was typed.
        commands: Group → the words of a command in it.
        words: What was typed behind the command.

    Raises:
        UsageError: None of the commands can read them.
    """
    root, first = ctx.find_root(), None
    for group, line in commands.items():
        name, *given = line.split()
        command = _command(root, group, name)
        try:
            with command.make_context(ctx.info_name, [*given, *words], parent=root) as inner:
                params = inner.params
        except click.UsageError as error:
            first = first or error
            continue
        found = [*(params.get("names") or ()), params.get("name"), params.get("version")]
        names = [one for one in found if one]
        return names, _without(words, names)
    assert first is not None
    raise first


def find_targets(
    client: CloudMlClient,
    ctx: click.Context,
    commands: Mapping[str, str],
    names: Sequence[str],
    options: Sequence[str] = (),
) -> Sequence[Target]:
    """The job or service of each name. Two names are one service where the second is a version of
    the first.

    A word of ``NOUNS`` may tell the kind, before the names or, with a slash, before one of them.

    Raises:
        UsageError: A name is that of several, or of none; it says the full commands.
    """
    if len(names) > 1 and is_noun(client, names[0]) and NOUNS[names[0]] in commands:
        group = NOUNS[names[0]]
        commands, names = {group: commands[group]}, names[1:]
    if len(names) == 2 and SERVICE in commands:
        service = find_services(client, names[0], names[1])
        if service and not find_jobs(client, names[0]):
            return service
    found = []
    for name in dict.fromkeys(names):
        noun, _, rest = name.partition("/")
        allowed, known = ({NOUNS[noun]}, rest) if rest and noun in NOUNS else (set(commands), name)
        if commands.get(JOB) == "logs":
            _check_no_task(ctx, name)
        targets = [
            *(find_jobs(client, known) if JOB in allowed & commands.keys() else ()),
            *(find_services(client, known) if SERVICE in allowed & commands.keys() else ()),
        ]
        if len(targets) != 1:
            raise click.UsageError(_explain(client, name, targets, commands, options), ctx=ctx)
        found += targets
    return found


def _check_no_task(ctx: click.Context, name: str) -> None:
    """Refuse the name of a task, as Kubernetes (``train/worker-1``) and Slurm (``train_3``) write
    it.

    Raises:
        UsageError: It is one; says how to name a task here.
    """
    job, _, task = name.partition("/")
    if found := _TASK_OF_SLURM.fullmatch(name):
        job, task = found[1], f"task-{found[2]}"
    if task and job not in NOUNS:
        raise click.UsageError(
            f"{name} is not the name of a job; one task: cloudml logs {job} --task {task}", ctx=ctx
        )


def is_noun(client: CloudMlClient, word: str) -> bool:
    """Whether a word tells a kind and is no name itself."""
    return word in NOUNS and not find_jobs(client, word) and not find_services(client, word)


def find_jobs(client: CloudMlClient, name: str) -> list[Target]:
    """The job of that name or uid, if there is one."""
    from cloud_ml.errors import NotFound

    try:
        job = client.describe_train_job(name)
    except NotFound:
        return []
    return [
        Target(JOB, (name,), job.phase, running=not job.finished and job.phase not in _NEVER_RUNS)
    ]


def find_services(client: CloudMlClient, name: str, version: str | None = None) -> list[Target]:
    """The services of that name, one for each version."""
    from cloud_ml.errors import InvalidRequest

    try:
        services = list(client.list_model_services(name=name, limit=_LOOKED_AT))
    except InvalidRequest:  # no service can have that name
        return []
    return [
        Target(SERVICE, (one.name, one.version), one.phase, running=one.phase not in _NEVER_RUNS)
        for one in services
        if version in (None, one.version)
    ]


def run_command(ctx: click.Context, group: str, args: Sequence[str]) -> int:
    """Run ``cloudml GROUP ARGS…`` and return its exit code."""
    root = ctx.find_root()
    with _group(root, group).make_context(group, list(args), parent=root) as inner:
        outcome = inner.command.invoke(inner)
    return outcome if isinstance(outcome, int) else 0


def _explain(
    client: CloudMlClient,
    name: str,
    found: Sequence[Target],
    commands: Mapping[str, str],
    options: Sequence[str],
) -> str:
    if not found and (advice := _advice_about_noun(name)):
        return f"there is no job and no model service {name}; {advice}"
    targets = found or [Target(group, (name,)) for group in commands]
    lines = [
        " ".join(["cloudml", one.group, commands[one.group], *options, *one.words])
        for one in targets
    ]
    return "\n  ".join([_sentence(client, name, found), *lines])


def _advice_about_noun(name: str) -> str:
    """What to say of a word that Kubernetes has after ``get``; empty for a name."""
    from cloud_ml.cli.suggestions import synonyms

    return synonyms.NOUN_ADVICE.get(name, "")


def _sentence(client: CloudMlClient, name: str, found: Sequence[Target]) -> str:
    if {one.group for one in found} == {JOB, SERVICE}:
        return f"{name} is the name of a job and of a model service; type one of these:"
    if found:
        return f"the model {name} has several versions; type one of these:"
    from difflib import get_close_matches

    jobs = (one.name for one in client.list_train_jobs(limit=_LOOKED_AT))
    services = (one.name for one in client.list_model_services(limit=_LOOKED_AT))
    if sentence := _study_sentence(client, name):
        return sentence
    near = get_close_matches(name, {*jobs, *services}, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"there is no job and no model service {name}{hint} The full commands are:"


def _study_sentence(client: CloudMlClient, name: str) -> str:
    """What to type where the name is that of a study."""
    from cloud_ml.errors import CloudMlError

    try:
        study = client.studies.describe(name)
    except CloudMlError:
        return ""
    trials = (
        "A loop of yours runs its trials, which are no jobs: their output is where that runs."
        if study.local
        else f"Its trials are jobs: cloudml logs {study.name}-hp-0."
    )
    return (
        f"{name} is a study; use: cloudml hp describe, trials, stop or delete {name}. {trials} "
        "For a job or a model service:"
    )


def _without(words: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """``words`` without the last of each of the names."""
    left = list(words)
    for name in names:
        if name in left:
            del left[len(left) - 1 - left[::-1].index(name)]
    return left


def _group(root: click.Context, name: str) -> click.Group:
    assert isinstance(root.command, click.Group)
    group = root.command.get_command(root, name)
    assert isinstance(group, click.Group)
    return group


def _command(root: click.Context, group: str, name: str) -> click.Command:
    command = _group(root, group).get_command(root, name)
    assert command is not None
    return command

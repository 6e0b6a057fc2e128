"""Commands without a noun: ``cloudml logs NAME`` and its like act on the job or the model
service of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import click

from cloud_ml.cli.completion.candidates import files, job_names
from cloud_ml.cli.session import Session
from cloud_ml.cli.shortcuts.kinds import (
    JOB,
    NOUNS,
    SERVICE,
    find_targets,
    is_noun,
    read_names,
    run_command,
)

_HELP_OPTIONS = ("-h", "--help")
_SCHEME = "fds://"
_DESCRIBE = {JOB: "describe", SERVICE: "describe"}


class RawCommand(click.Command):
    """A command that gets its arguments as they were typed, for another command to read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(one in _HELP_OPTIONS for one in args[: args.index("--") if "--" in args else None]):
            return super().parse_args(ctx, ["--help"])
        ctx.params["words"] = tuple(args)
        return args


def _by_kind(name: str, text: str, commands: Mapping[str, str]) -> click.Command:
    """A command that hands its arguments to the one of ``commands`` (group → words) that fits
    the name.
    """
    argument = click.Argument(["words"], nargs=-1, metavar="NAME...", shell_complete=job_names)
    return RawCommand(name, params=[argument], callback=partial(_run_by_kind, commands), help=text)


def _run_by_kind(commands: Mapping[str, str], words: tuple[str, ...]) -> int:
    ctx = click.get_current_context()
    names, options = read_names(ctx, commands, words)
    code = 0
    for target in find_targets(ctx.ensure_object(Session).client, ctx, commands, names, options):
        code = max(
            code,
            run_command(
                ctx, target.group, [*commands[target.group].split(), *options, *target.words]
            ),
        )
    return code


def _list(words: tuple[str, ...]) -> int:
    ctx = click.get_current_context()
    if any(one.startswith(_SCHEME) for one in words):
        return run_command(ctx, "storage", ["ls", *words])
    return run_command(ctx, "jobs", ["list", *words])


def _submit(words: tuple[str, ...]) -> int:
    return run_command(click.get_current_context(), "jobs", ["submit", "--watch", *words])


def _describe(words: tuple[str, ...]) -> int:
    ctx = click.get_current_context()
    if not words or all(one.startswith("-") for one in words):
        return run_command(ctx, JOB, ["list", *words])
    if _names_kind_alone(ctx, words):
        return run_command(ctx, NOUNS[words[0]], ["list", *words[1:]])
    return _run_by_kind(_DESCRIBE, words)


def _names_kind_alone(ctx: click.Context, words: tuple[str, ...]) -> bool:
    """Whether all of a kind are meant, with options of a list, as in ``get pods -o wide``."""
    if words[0] not in NOUNS or (len(words) > 1 and not words[1].startswith("-")):
        return False
    try:
        names, _ = read_names(ctx, _DESCRIBE, words)
    except click.UsageError:  # an option of lists, or of none
        names = words[:1]
    return list(names) == [words[0]] and is_noun(ctx.ensure_object(Session).client, words[0])


_CODE = click.Argument(
    ["words"], nargs=-1, metavar="[NAME MODULE URI] [-- ARGS...]", shell_complete=files
)
_NAMES = click.Argument(["words"], nargs=-1, metavar="[NAME]", shell_complete=job_names)
_URIS = click.Argument(["words"], nargs=-1, metavar="[URI]...")

ls = RawCommand(
    "ls", params=[_URIS], callback=_list, help="List jobs, or the objects below URI (fds://…)."
)
ps = RawCommand("ps", callback=_list, help="List jobs.")
run = RawCommand(
    "run",
    params=[_CODE],
    callback=_submit,
    help="Submit a train job and follow its log. The options are those of `cloudml jobs submit`. "
    "With --detach it returns at once.",
)
status = RawCommand(
    "status",
    params=[_NAMES],
    callback=_describe,
    help="Describe a job or a model service; without NAME, list jobs.",
)
logs = _by_kind(
    "logs", "Print the output of a job or a model service.", {JOB: "logs", SERVICE: "logs"}
)
kill = _by_kind(
    "kill",
    "Stop a job or a model service at once.",
    {JOB: "cancel --grace 0", SERVICE: "stop --grace 0"},
)
stop = _by_kind("stop", "Stop a job or a model service.", {JOB: "cancel", SERVICE: "stop"})
events = _by_kind(
    "events", "List what happened to a job or a model service.", {JOB: "events", SERVICE: "events"}
)
wait = _by_kind("wait", "Wait for a job or a model service.", {JOB: "wait", SERVICE: "wait"})
metrics = _by_kind(
    "metrics", "Show what a job or a model service uses.", {JOB: "metrics", SERVICE: "metrics"}
)
start = _by_kind("start", "Start a saved job or model service.", {JOB: "start", SERVICE: "start"})

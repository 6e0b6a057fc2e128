"""``rm``: delete jobs and model services, and ask before one of them that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import is_person, note
from cloud_ml.cli.session import Session
from cloud_ml.cli.shortcuts.kinds import JOB, SERVICE, Target, find_targets, run_command

_SCHEME = "fds://"


class RemoveCommand(click.Command):
    """``rm`` of names; with a URI among them, ``storage rm`` reads the arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not any(one.startswith(_SCHEME) for one in args):
            return super().parse_args(ctx, args)
        ctx.params["storage_arguments"] = tuple(args)
        return args


def _rm(
    commands: Mapping[str, str],
    *,
    names: tuple[str, ...] = (),
    force: bool = False,
    wait: bool = False,
    storage_arguments: tuple[str, ...] = (),
) -> int:
    ctx = click.get_current_context()
    if storage_arguments:
        return run_command(ctx, "storage", ["rm", *storage_arguments])
    targets = find_targets(ctx.ensure_object(Session).client, ctx, commands, names)
    if not force and not _confirm_deletion(ctx, targets):
        note("Nothing is deleted.")
        return 1
    code = 0
    for target in targets:
        # whether to ask is decided above
        args = [commands[target.group], "--yes", *target.words, *(["--wait"] if wait else [])]
        code = max(code, run_command(ctx, target.group, args))
    return code


def _confirm_deletion(ctx: click.Context, targets: Sequence[Target]) -> bool:
    running = [one for one in targets if one.running]
    if not running:
        return True
    what = ", ".join(f"{' '.join(one.words)} ({one.phase})" for one in running)
    if not is_person():
        verb = "has" if len(running) == 1 else "have"
        raise click.UsageError(f"{what} {verb} not ended; add --force to stop and delete", ctx=ctx)
    return click.confirm(f"Stop and delete {what}?", err=True)


def _command(commands: Mapping[str, str], text: str) -> click.Command:
    names = click.Argument(
        ["names"], nargs=-1, required=True, metavar="NAME...", shell_complete=job_names
    )
    force = click.Option(
        ["-f", "--force", "-y", "--yes"],
        is_flag=True,
        help="Stop and delete what runs; do not ask.",
    )
    wait = click.Option(
        ["--wait"], is_flag=True, help="Return when they are gone and their names are free."
    )
    return RemoveCommand(
        "rm", params=[names, force, wait], callback=partial(_rm, commands), help=text
    )


rm = _command(
    {JOB: "delete", SERVICE: "delete"},
    "Delete jobs and model services, or objects (fds://…); ask before one that runs.",
)
rm_job = _command({JOB: "delete"}, "Delete jobs; ask before one that runs.")
rm_service = _command({SERVICE: "delete"}, "Delete model services; ask before one that runs.")

"""``cloudml jobs rerun`` and ``cloudml jobs export``: every job keeps what it was submitted as."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli import exit_codes
from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import echo_document, note, output_option
from cloud_ml.cli.jobs.dry_run import check_job, describe_package
from cloud_ml.cli.jobs.options import field_options, given_fields, with_given
from cloud_ml.cli.jobs.requirement_options import given_requirements, requirement_options
from cloud_ml.cli.jobs.sending import send, with_recipe_of_code
from cloud_ml.cli.jobs.submit_arguments import (
    SubmitCommand,
    environment_options,
    given_behind,
    given_pairs,
)
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cloud_ml.models.jobs.job import Job
    from cloud_ml.models.jobs.train_job import TrainJob

_SECRETS = ("hdfs_krb_password", "hdfs_krb_keytab")
_NUMBERED = re.compile(r"-[1-9][0-9]?$")


@click.command(cls=SubmitCommand, epilog=exit_codes.HELP)
@click.argument("job", shell_complete=job_names)
@field_options
@requirement_options
@environment_options
@click.option("-W", "--watch", is_flag=True, help="Follow the log, then exit as the job did.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the job; print it and the files that would be sent; submit nothing.",
)
@output_option()
@pass_session
def rerun(
    session: Session,
    /,
    job: str,
    *,
    requirement_files: tuple[Path, ...],
    packages: tuple[str, ...],
    environment: tuple[str, ...],
    environment_files: tuple[Path, ...],
    labels: tuple[str, ...],
    watch: bool,
    dry_run: bool,
    output: str | None,
    **options: Any,
) -> int:
    """Resubmit JOB with the same code, optionally with changes.

    \b
    cloudml jobs rerun linear
    cloudml jobs rerun linear -M 2G -- --epochs 30

    Unless --job_name gives another one, the new name is the old one with a number. What stands
    behind `--` takes the place of all the trainer's arguments.
    """
    from cloud_ml.models import codec
    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.models.secrets.secret import has_mask

    given = given_fields(options)
    found = session.client.describe_train_job(job)
    fields = with_given({**submitted_fields(found), "save_mode": False}, given)
    if kept := found.spec.get("secrets"):
        fields["secrets"] = list(dict.fromkeys([*kept, *given.get("secrets", ())]))
    fields |= given_requirements(fields, requirement_files, packages)
    fields |= given_pairs(fields, environment, labels, environment_files)
    if behind := given_behind():
        fields["job_args"] = behind
    if missing := [name for name in _SECRETS if found.spec.get(name) and name not in given]:
        raise InvalidRequest(
            f"{found.name} had a {missing[0]}, which is never shown again",
            field=missing[0],
            hint=f"Give it: --{missing[0]}"
            + (" or CLOUDML_HDFS_KRB_PASSWORD." if "password" in missing[0] else "."),
        )
    if "job_name" not in given:
        fields["job_name"] = _NUMBERED.sub("", found.name)
    new_job = with_recipe_of_code(codec.decode(TrainJob, fields))
    masks = any(has_mask(*pair) for pair in (fields.get("environment") or {}).items())
    resubmit_of = found.uid if masks or any(_masked_flags(fields)) else None
    if dry_run:
        unchecked = check_job(session, new_job, resubmit_of=resubmit_of)
        describe_package(new_job.trainer_uri)
        echo_document(_without_defaults(codec.encode(new_job)))
        if unchecked:
            note(unchecked)
        return 0
    note_start(session, found, new_job)
    return send(
        session, new_job, named="job_name" in given, watch=watch, output=output,
        resubmit_of=resubmit_of,
    )  # fmt: skip


def note_start(session: Session, before: Job, new_job: TrainJob) -> None:
    """Say that a copy of a job that did not succeed begins anew, if that job left anything."""
    in_folder = new_job.checkpoint is not None and new_job.checkpoint.path
    if new_job.restore_from or in_folder or not before.finished or before.succeeded:
        return
    if session.client.train_job_checkpoints(before.name):
        note(
            "Note: it starts from the beginning. To go on from the newest checkpoint of "
            f"{before.name}, add --restore-from {before.name}; your code finds its path in "
            "CLOUDML_RESTORE_FROM"
        )
    elif before.outputs is not None and before.outputs.files:
        note(
            f"Note: it starts from the beginning, in a folder without the files that {before.name} "
            "left. To go on in the next job, save to $CLOUDML_CHECKPOINT_DIR (docs/howto/checkpoints.md)"
        )


@click.command()
@click.argument("name", shell_complete=job_names)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("yaml", "json")),
    default="yaml",
    show_default=True,
    help="The form.",
)
@pass_session
def export(session: Session, name: str, output: str) -> None:
    """Print job NAME as a file that can be submitted: cloudml jobs submit -f FILE.

    Passwords are left out.
    """
    from cloud_ml.models.secrets.secret import MASK, has_mask, store_as_secret

    job = session.client.describe_train_job(name)
    fields = submitted_fields(job)
    variables = fields.get("environment") or {}
    hidden = [variable for variable, value in variables.items() if has_mask(variable, value)]
    if hidden:
        fields["environment"] = {
            one: value for one, value in variables.items() if one not in hidden
        }
        fields = {name: value for name, value in fields.items() if value != {}}
    if output == "json":
        echo_document(fields)
    else:
        from cloud_ml.cli.display.yamls import dump

        click.echo(dump(fields), nl=False)
    for secret in (one for one in _SECRETS if job.spec.get(one)):
        note(f"{secret} is left out; give it when you submit: --{secret}")
    for variable in hidden:
        note(
            f"{variable} is left out; give it when you submit: --env {variable}, or "
            f"{store_as_secret(variable)}"
        )
    for field, flag in _masked_flags(fields):
        note(f"the value of {flag} in {field} is not shown; replace {MASK} before you submit")


def _masked_flags(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, flag) of each mask in arguments and commands."""
    from cloud_ml.models.secrets.arguments import flags_with_masks
    from cloud_ml.models.secrets.commands import command_flags_with_masks

    for flag in flags_with_masks(fields.get("job_args")):
        yield "job_args", flag
    for field in ("prepare_command", "finish_command"):
        for flag in command_flags_with_masks(fields.get(field)):
            yield field, flag


def submitted_fields(job: Job) -> dict[str, Any]:
    """What a job was submitted as, without what equals the defaults, without secrets and without
    labels that the platform gave it.
    """
    from cloud_ml.models.jobs.clone import labels_of_copy

    fields = {name: value for name, value in job.spec.items() if name not in _SECRETS}
    return _without_defaults(
        {**fields, "labels": labels_of_copy(job.name, fields.get("labels")) or None}
    )


def _without_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    from cloud_ml.models.jobs.train_job import TrainJob

    defaults = {field.name: field.default for field in dataclasses.fields(TrainJob)}
    return {
        name: value
        for name, value in spec.items()
        if value != defaults.get(name, dataclasses.MISSING)
    }

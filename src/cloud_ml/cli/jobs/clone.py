"""``cloudml jobs clone``: a copy of a job in which some arguments have other values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli import exit_codes
from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import note, output_option
from cloud_ml.cli.jobs.options import field_options, given_fields, with_given
from cloud_ml.cli.jobs.requirement_options import given_requirements, requirement_options
from cloud_ml.cli.jobs.sending import tell_submitted
from cloud_ml.cli.jobs.submit_arguments import (
    SubmitCommand,
    environment_options,
    given_behind,
    given_pairs,
    read_pairs,
)
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models import common, parameter_file
from cloud_ml.models.jobs.clone import labels_of_copy

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=SubmitCommand, epilog=exit_codes.HELP)
@click.argument("job", shell_complete=job_names)
@click.argument("new_name", metavar="[NEW_NAME]", required=False)
@click.option(
    "-s",
    "--set",
    "changes",
    multiple=True,
    metavar="FLAG=VALUE",
    help="Another value for an argument, such as lr=0.1. Repeat for several.",
)
@click.option(
    "--unset", "removed", multiple=True, metavar="FLAG", help="Leave out an argument and its value."
)
@field_options
@requirement_options
@environment_options
@click.option("-W", "--watch", is_flag=True, help="Follow the log, then exit as the job did.")
@output_option()
@pass_session
def clone(
    session: Session,
    /,
    job: str,
    new_name: str | None,
    *,
    changes: tuple[str, ...],
    removed: tuple[str, ...],
    requirement_files: tuple[Path, ...],
    packages: tuple[str, ...],
    environment: tuple[str, ...],
    environment_files: tuple[Path, ...],
    labels: tuple[str, ...],
    watch: bool,
    output: str | None,
    **options: Any,
) -> int:
    """Submit a copy of JOB with the same code and other arguments.

    \b
    cloudml jobs clone linear --set lr=0.1
    cloudml jobs clone linear slow --set lr=0.1 --set epochs=30 -M 2G
    cloudml jobs clone linear -- --lr 0.1

    Arguments that --set does not name stay, unless others stand behind `--`: they take the place of
    all. Without NEW_NAME (or --job_name), the new name is the old one with a number.
    """
    given = given_fields(options)
    if new_name is not None:
        other = given.setdefault("job_name", new_name)
        if other != new_name:
            raise click.UsageError(f"the new name is given twice: {new_name} and {other}")
    found = session.client.describe_train_job(job)
    kept = {name: value for name, value in found.spec.items() if value is not None}
    kept["labels"] = labels_of_copy(found.name, kept.get("labels"))
    fields = with_given(dict(kept), given)
    fields |= given_requirements(fields, requirement_files, packages)
    pairs = given_pairs({"labels": kept.get("labels")}, environment, labels, environment_files)
    variables = pairs.pop("environment", {})
    fields |= pairs
    if behind := given_behind():
        fields["job_args"] = behind
    if names := given.get("secrets"):
        fields["secrets"] = list(dict.fromkeys([*(kept.get("secrets") or ()), *names]))
    changed = {name: value for name, value in fields.items() if value != kept.get(name)}
    changed |= {name: None for name in kept if name not in fields}
    name = changed.pop("job_name", None)
    arguments: dict[str, Any] = dict.fromkeys(removed)
    arguments |= read_pairs("--set", changes)
    _note_new_flags(fields, arguments)
    handle = session.client.clone_train_job(
        found.uid, arguments, job_name=name, environment=variables, **changed
    )
    return tell_submitted(handle, (), watch=watch, output=output)


def _note_new_flags(spec: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Say it if a flag is new and looks like one that the job has: it may be a typing error."""
    from difflib import get_close_matches  # takes milliseconds, and few need it

    words = common.arguments(spec.get("job_args"))
    known = [word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")]
    in_file = (spec.get("environment") or {}).get(parameter_file.VARIABLE, "")
    known += parameter_file.decode_parameters(in_file) or {}
    for name in (each.lstrip("-") for each, value in arguments.items() if value is not None):
        if name not in known and (near := get_close_matches(name, known, n=1)):
            note(f"--{name} is new; the job has --{near[0]}, which stays as it is")

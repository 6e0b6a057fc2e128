"""``cloudml jobs submit``, as both generations of the command write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cloud_ml.cli import exit_codes
from cloud_ml.cli.completion.candidates import files
from cloud_ml.cli.display.output import echo_document, note, output_option, without_secrets
from cloud_ml.cli.jobs.dry_run import check_job, describe_package
from cloud_ml.cli.jobs.options import RESOURCES, field_options, given_fields, with_given
from cloud_ml.cli.jobs.requirement_options import (
    given_requirements,
    requirement_options,
    unread_requirements,
)
from cloud_ml.cli.jobs.sending import send, with_recipe_of_code
from cloud_ml.cli.jobs.submit_arguments import (
    LaunchCommand,
    environment_options,
    given_behind,
    given_pairs,
    with_defaults,
    with_words,
)
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest


def _refuse_argo_mode(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError(
            "--argo_mode is not offered: --model_name and --model_version ask for a model "
            "service after the job"
        )


@click.command(cls=LaunchCommand, epilog=exit_codes.HELP)
@click.argument("words", nargs=-1, metavar="[NAME MODULE URI] [-- ARGS...]", shell_complete=files)
@field_options
@click.option(
    "-f",
    "--filename",
    type=click.Path(path_type=Path),
    help="Job file (JSON, TOML, YAML); options override it.",
)
@click.option(
    "-cs",
    "--cluster_spec",
    cls=Option,
    metavar="JSON",
    help='Roles: {"worker": {"count": 2, "cpu_limit": "1"}, …}.',
)
@click.option(
    "-D",
    "--distributed",
    cls=Option,
    is_flag=True,
    help="Ask for the roles of a job of several tasks.",
)
@requirement_options
@environment_options
@click.option(
    "-argo",
    "--argo_mode",
    is_flag=True,
    hidden=True,
    expose_value=False,
    callback=_refuse_argo_mode,
)
@click.option(
    "-W",
    "--watch",
    cls=Option,
    aliases=("--follow", "--attach"),
    is_flag=True,
    help="Follow the log, then exit as the job did.",
)
@click.option(
    "--detach",
    cls=Option,
    aliases=("--detach-run", "--no-wait"),
    is_flag=True,
    help="Return at once, which is the default; for `cloudml run`, which watches.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the job; print it and the files that would be sent; submit nothing.",
)
@output_option()
@pass_session
def submit(
    session: Session,
    /,
    words: tuple[str, ...],
    *,
    filename: Path | None,
    cluster_spec: str | None,
    distributed: bool,
    requirement_files: tuple[Path, ...],
    packages: tuple[str, ...],
    environment: tuple[str, ...],
    environment_files: tuple[Path, ...],
    labels: tuple[str, ...],
    watch: bool,
    detach: bool,
    dry_run: bool,
    output: str | None,
    **options: Any,
) -> int:
    """Submit a train job.

    \b
    cloudml jobs submit .
    cloudml jobs submit ./linear --name first
    cloudml jobs submit linear trainer.task ./linear -- --epochs 3
    cloudml jobs submit -n linear -m trainer.task -u fds://ml/linear.tar.gz -c 2

    NAME, MODULE and URI are taken in this order for those that neither an option nor the job file
    gives. A local folder or file is packed and uploaded, unless the server has it already. With the
    URI alone, the name comes from the folder or file. The module is detected if it is unambiguous:
    a script, trainer.task, a package with a __main__.py.
    """
    from cloud_ml.cli.jobs.jobfile import read_job_file
    from cloud_ml.models import codec
    from cloud_ml.models.jobs.train_job import TrainJob

    fields = read_job_file(filename) if filename else {}
    fields = with_given(fields, given_fields(options))
    _check_image(fields)
    fields |= _roles(cluster_spec, distributed, fields)
    fields |= given_requirements(fields, requirement_files, packages)
    fields |= given_pairs(fields, environment, labels, environment_files)
    fields = with_words(fields, words, given_behind())
    named = "job_name" in fields
    job = codec.decode(TrainJob, with_defaults(fields))
    if unread := unread_requirements(job):
        note(unread)
    job = with_recipe_of_code(job)
    if dry_run:
        unchecked = check_job(session, job)
        describe_package(job.trainer_uri)
        echo_document(without_secrets(codec.encode(job)))
        if unchecked:
            note(unchecked)
        return 0
    return send(session, job, named=named, watch=watch and not detach, output=output)


def _check_image(fields: dict[str, Any]) -> None:
    """Other tools have ``-d`` for ``--detach``, and would take the next word for the code."""
    image = fields.get("docker_image")
    if isinstance(image, str) and (image == "." or Path(image).exists()):
        raise click.UsageError(
            f"-d names a container image here; write: cloudml run {image} --detach"
        )


_SIZE_OPTIONS = (*RESOURCES, "ps_count", "worker_count", "array")
"""What ``--distributed`` reads itself, or what has no roles."""


def _roles(cluster_spec: str | None, distributed: bool, fields: dict[str, Any]) -> dict[str, Any]:
    if distributed:
        if cluster_spec or (both := [name for name in _SIZE_OPTIONS if name in fields]):
            other = "--cluster_spec" if cluster_spec else ", ".join(f"--{name}" for name in both)
            raise click.UsageError(
                f"--distributed asks for the roles and their limits; leave out {other}"
            )
        from cloud_ml.cli.jobs.roles import ask_for_roles

        return {"cluster_spec": ask_for_roles()}
    if cluster_spec is None:
        return {}
    from cloud_ml.cli.options import json_documents

    try:
        return {"cluster_spec": json_documents.load(cluster_spec)}
    except ValueError as error:
        raise InvalidRequest(
            f"cluster_spec is not valid JSON: {error}",
            field="cluster_spec",
            value=cluster_spec,
            allowed='an object such as {"worker": {"count": 2}}',
            hint=_hint_of_file(cluster_spec),
        ) from error


def _hint_of_file(text: str) -> str | None:
    """For users of tools that take the name of a file there."""
    name = text.removeprefix("@")
    if not name.endswith((".json", ".yaml", ".yml", ".toml")):
        return None
    return f'Give the text itself: --cluster_spec "$(cat {name})", or write it into a job file: -f FILE'

"""``cloudml jobs outputs`` and ``jobs cp``: the files that a job left."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import Job
    from cloud_ml.models.jobs.outputs import OutputFile

_DEPLOYED_AS = "NAME v1"
_MAY_BE_WEIGHTS = (".pt", ".pth", ".bin")


@click.command()
@click.argument("name", shell_complete=job_names)
@output_option()
@pass_session
def outputs(session: Session, name: str, output: str | None) -> None:
    """List the files that a job left in its working directory.

    New and changed files are stored when the job ends, also when it fails or is cancelled.
    """
    job = session.client.describe_train_job(name)
    files = list(session.client.train_job_outputs(job.uid))
    if echo_as(output, files, (file.path for file in files)):
        return
    if files:
        rows = [(file.path, figures.size(file.size), local_time(file.modified)) for file in files]
        echo_table(("PATH", "SIZE", "MODIFIED"), rows)
    for line in remarks(job, files):
        note(line)


@click.command()
@click.argument("source", metavar="NAME:PATH")
@click.argument("target")
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Copy a folder with everything below it."
)
@click.option(
    "-u",
    "--update",
    "--sync",
    is_flag=True,
    help="Skip files that are there already with the same content.",
)
@pass_session
def cp(session: Session, source: str, target: str, *, recursive: bool, update: bool) -> int:
    """Copy outputs of a job to this machine, or to a bucket.

    \b
    cloudml jobs cp churn:model.pt .
    cloudml jobs cp -r churn: ./results

    PATH is relative to the working directory of the job. `cloudml jobs outputs NAME` lists the
    paths.
    """
    from cloud_ml.cli.storage.checks import check_plan
    from cloud_ml.cli.storage.copy import perform
    from cloud_ml.cli.storage.plan import check_schemes, plan
    from cloud_ml.sdk.jobs.output_paths import OutputSource, no_such_output

    check_schemes((target,))
    job, path = _job_and_path(session, source)
    recursive = recursive or source.endswith((":.", ":./"))  # as kubectl and docker have it
    if job.outputs is None:
        raise NotFound(f"{job.name} has no outputs. {no_outputs(job)}", field="path", value=path)
    if not recursive and (not path or path.endswith("/")):
        raise click.UsageError(f"{source} is a folder: copy it with -r")
    store = session.client.storage
    folder = f"{job.outputs.uri}/"
    try:
        made = plan(store, (folder + path,), target, recursive=recursive)
    except NotFound as error:
        if error.field == "target":  # there is no bucket to copy to
            raise
        raise no_such_output(OutputSource(job.name, path)) from None
    except click.UsageError:  # which names where the server keeps it
        raise click.UsageError(f"{source} is a folder: copy it with -r") from None
    check_plan(made)

    def rename(text: str) -> str:
        return text.replace(folder, f"{job.name}:")

    return perform(store, made, update=update, rename=rename)


def remarks(job: Job, files: Sequence[OutputFile]) -> list[str]:
    """What to say below a list of outputs: the amount, what is missing, and how to deploy a
    model.
    """
    from cloud_ml.models.jobs.outputs import models_of

    if not files and not (job.outputs and job.outputs.not_kept):
        return [no_outputs(job)]
    count, size = len(files), sum(file.size for file in files)
    if job.outputs is not None and count < job.outputs.files:  # the list was cut
        count, size = job.outputs.files, job.outputs.bytes
    found = [f"{amount(count, size)}. Copy them: cloudml jobs cp -r {job.name}: ."] if count else []
    if job.outputs and (missing := job.outputs.not_kept):
        found.append(
            f"{figures.files(missing)} could not be saved. See why: cloudml jobs events {job.name}"
        )
    models = [shlex.quote(f"{job.name}:{path}") for path in models_of(files)]
    found += [f"Deploy a model: cloudml models deploy {_DEPLOYED_AS} {model}" for model in models]
    if any(model.rstrip("'").endswith(_MAY_BE_WEIGHTS) for model in models):
        found.append("A PyTorch file must hold a whole model: TorchScript or an exported program.")
    return found


def no_outputs(job: Job) -> str:
    """Why a job has no outputs, in a sentence."""
    if not job.finished:
        return f"{job.name} is {job.phase}. Its outputs are saved when it ends."
    if job.spec.get("outputs") == []:
        return "The job was submitted with --no-outputs."
    return "Nothing was written."


def outputs_that_go(job: Job) -> str:
    """What to add to the news that a job is deleted: how much goes with it."""
    if job.outputs is None or not job.outputs.files:
        return ""
    return f", with {amount(job.outputs.files, job.outputs.bytes)} of outputs"


def amount(files: int, size: int) -> str:
    """Such as ``3 files (1.2 MiB)``."""
    return f"{figures.files(files)} ({figures.size(size)})"


def _job_and_path(session: Session, source: str) -> tuple[Job, str]:
    name, colon, path = source.partition(":")
    if not colon or not name or "/" in name:
        raise InvalidRequest(
            f"{source!r} names no output of a job", field="source", value=source,
            allowed="NAME:PATH such as churn:model.pt, or NAME: with -r for everything",
        )  # fmt: skip
    path = path.removeprefix("./")
    return session.client.describe_train_job(name), "" if path == "." else path

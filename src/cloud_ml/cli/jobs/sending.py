"""Sending a job: its code with a bar, the job itself, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cloud_ml.cli.display.advice import next_step
from cloud_ml.cli.display.output import echo, echo_as, note, without_secrets
from cloud_ml.cli.display.progress import bar, spinner
from cloud_ml.cli.jobs.recovery_facts import find_checkpoint_given
from cloud_ml.cli.session import Session
from cloud_ml.errors import AlreadyExists, RequestError, TransportError
from cloud_ml.models.paths.local import local_path

if TYPE_CHECKING:
    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.sdk.jobs.handles import JobHandle
    from cloud_ml.sdk.progress import Progress

_MOST_NAMES = 20


def send(
    session: Session,
    job: TrainJob,
    *,
    named: bool,
    watch: bool,
    output: str | None,
    resubmit_of: str | None = None,
) -> int:
    """Submit a job, say so, and follow it if that is asked for; returns the exit code.

    With ``named`` false the name is ours: where it is taken, a number is put behind it.
    """
    handle = _submit_job(session, job, named=named, resubmit_of=resubmit_of)
    return tell_submitted(handle, _notes(job), watch=watch, output=output)


def tell_submitted(
    handle: JobHandle, notes: Iterable[str], *, watch: bool, output: str | None
) -> int:
    """Say that a job is submitted, and from what it may go on, and follow it if that is asked for;
    returns the exit code.
    """
    from cloud_ml.models import codec

    document = {**codec.encode(handle.job), "spec": without_secrets(handle.job.spec)}
    if not echo_as(output, document, handle.name):
        if watch:
            note(
                f"{handle.name} is submitted ({handle.phase}). Ctrl-C stops the output, not "
                "the job."
            )
        else:
            echo(f"{handle.name} is submitted ({handle.phase})")
            note(
                next_step(handle.job)
                if handle.phase == "Saved"
                else f"Follow it: cloudml jobs logs {handle.name} -f"
            )
        for text in (*_checkpoints_given(handle), *notes):
            note(text)
    if not watch or handle.phase == "Saved":
        return 0
    from cloud_ml.cli.display.watching import watch as follow

    return follow(handle)


def _checkpoints_given(handle: JobHandle) -> list[str]:
    """What a job finds to go on from, as the server says it; nothing if that cannot be asked."""
    spec = handle.job.spec
    if not spec.get("restore_from") and not (spec.get("checkpoint") or {}).get("path"):
        return []
    try:
        found = find_checkpoint_given(handle.events())
    except (RequestError, TransportError):  # the job is submitted all the same
        return []
    return [found[0].upper() + found[1:]] if found else []


def _notes(job: TrainJob) -> Iterator[str]:
    """What to know about a job that was submitted."""
    from cloud_ml.models.secrets.arguments import masked_flags, variable_of
    from cloud_ml.models.secrets.commands import masked_command_flags
    from cloud_ml.models.secrets.secret import masked_names, store_as_secret

    if text := _master_added(job):
        yield text
    commands = (job.prepare_command, job.finish_command)
    flags_of_commands = [flag for command in commands for flag in masked_command_flags(command)]
    if names := [
        *masked_names(job.environment or {}),
        *masked_flags(job.job_args),
        *flags_of_commands,
    ]:
        yield (
            f"Note: the value of {names[0]} is not shown; better "
            f"{store_as_secret(variable_of(names[0]))}"
        )


def with_recipe_of_code(job: TrainJob, option: str = "--recipe") -> TrainJob:
    """The job with the recipe that its local code tells, which is said; ``option`` overrides it."""
    if not (job.worker_count or job.worker_spec or job.elastic):
        return job
    from cloud_ml.sdk.trainers.code_recipe import recipe_of_code

    if (found := recipe_of_code(job)) is None:
        return job
    note(f"{found.reason}: {_count_workers(job)}, recipe {found.recipe}; {option} chooses another")
    return replace(job, recipe=found.recipe)


def _count_workers(job: TrainJob) -> str:
    spec = job.worker_spec
    count = job.worker_count or (spec.count or spec.replica_count if spec is not None else None)
    if count is None or isinstance(count, str):  # such as 2:8
        return f"{str(count).replace(':', ' to ')} tasks" if count else "no master"
    return "1 task" if count == 1 else f"{count} tasks"


_WITHOUT_MASTER = "--recipe pytorch (or jax, xgboost, lightgbm, cluster)"


def _master_added(job: TrainJob) -> str:
    """What to know about a job that counts workers and does not say what it is."""
    if not job.worker_count or job.framework or job.recipe or job.ps_count or job.ps_spec:
        return ""
    if isinstance(job.worker_count, str):  # such as 2:8
        return (
            f"{job.job_name} has a master beside {job.worker_count} workers, as in TensorFlow. "
            f"With {_WITHOUT_MASTER}, -w {job.worker_count} makes workers only."
        )
    workers = job.worker_count
    return (
        f"{job.job_name} has {workers + 1} tasks: a master beside the workers, as in TensorFlow. "
        f"With {_WITHOUT_MASTER}, -w {workers} makes {workers}."
    )


def _submit_job(
    session: Session, job: TrainJob, *, named: bool, resubmit_of: str | None
) -> JobHandle:
    first = job.job_name
    for number in range(2, _MOST_NAMES + 1):
        try:
            with sending(job.trainer_uri) as progress:
                return session.client.submit_train_job(
                    job, progress=progress, resubmit_of=resubmit_of
                )
        except AlreadyExists as error:
            if named:
                error.hint = (
                    error.hint
                    or "Choose another name, or remove that job: cloudml jobs delete " + first
                )
                raise
            job.job_name = f"{first}-{number}"
    raise AlreadyExists(
        f"{first} and {_MOST_NAMES - 1} names like it are taken",
        field="job_name",
        hint="Give one: -n NAME.",
    )


@contextmanager
def sending(trainer_uri: str) -> Iterator[Progress]:
    """Show that code is packed, then how far its upload is; nothing for code that is on the
    server.
    """
    from cloud_ml.sdk.trainers.upload import is_local

    if not is_local(trainer_uri):
        yield lambda _done, _total: None
        return
    label = local_path(trainer_uri).resolve().name
    with ExitStack() as shown:
        shown.enter_context(spinner(f"Packing {label}"))
        bars: list[Progress] = []

        def tell(done: int, total: int | None) -> None:
            if not bars:
                shown.pop_all().close()
                bars.append(shown.enter_context(bar(f"Uploading {label}", total)))
            bars[0](done, total)

        yield tell

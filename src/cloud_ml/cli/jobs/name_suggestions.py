"""A name that is not there, and those of one's own jobs which are like it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.session import Session
from cloud_ml.errors import CloudMlError, NotFound

_LOOKED_AT = 1000


@contextlib.contextmanager
def near_names(session: Session) -> Iterator[None]:
    """Within this, an error about a job that does not exist tells which names are like the one
    that was given.
    """
    try:
        yield
    except NotFound as error:
        if error.field == "job_name" and not error.hint and isinstance(error.value, str):
            with contextlib.suppress(CloudMlError):
                from difflib import get_close_matches  # only on this way out

                names = [one.name for one in session.client.list_train_jobs(limit=_LOOKED_AT)]
                error.hint = _of_task(session, error.value, names)
                if not error.hint and (near := get_close_matches(error.value, names, n=3)):
                    error.hint = f"Did you mean {' or '.join(near)}?"
        raise


def _of_task(session: Session, name: str, jobs: Sequence[str]) -> str | None:
    """What to say about a name such as ``linear-worker-1``, as other tools call a task."""
    for job in sorted(jobs, key=len, reverse=True):
        task = name.removeprefix(f"{job}-")
        if task != name and task in [one.name for one in session.client.train_job_tasks(job).items]:
            return f"It is a task of {job}: cloudml jobs logs {job} --task {task}"
    return None


class JobsGroup(LazyGroup):
    """Commands that name jobs."""

    def invoke(self, ctx: click.Context) -> object:
        with near_names(ctx.ensure_object(Session)):
            return super().invoke(ctx)

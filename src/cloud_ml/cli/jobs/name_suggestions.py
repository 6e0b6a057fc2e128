"""A name that is not there, and those of one's own jobs which are like it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import click

from cloud_ml.cli.guard import each
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.session import Session
from cloud_ml.errors import CloudMlError, NotFound

_LOOKED_AT = 1000
_OF_TASKS = ("logs", "restart", "stacks")
"""Commands that take a task of a job."""


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
            context = click.get_current_context()  # that of the group, or of the command in it
            command = context.invoked_subcommand or context.info_name or "logs"
            return f"It is a task of {job}: cloudml jobs {command} {job}{_option(command, task)}"
    return None


def _option(command: str, task: str) -> str:
    return f" --task {task}" if command in _OF_TASKS else ""


def each_job(session: Session, names: Sequence[str], do: Callable[[str], None]) -> int:
    """``guard.each`` for jobs: an error about one that does not exist tells of near names."""

    def do_one(name: str) -> None:
        with near_names(session):
            do(name)

    return each(names, do_one)


class JobsGroup(LazyGroup):
    """Commands that name jobs."""

    def invoke(self, ctx: click.Context) -> object:
        with near_names(ctx.ensure_object(Session)):
            return super().invoke(ctx)

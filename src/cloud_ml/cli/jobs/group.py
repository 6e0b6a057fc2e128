"""``cloudml jobs``: events, and what ends, starts or holds a job; the other commands have files of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import echo, is_person, note, output_option
from cloud_ml.cli.display.progress import spinner
from cloud_ml.cli.jobs.name_suggestions import JobsGroup, each_job, near_names
from cloud_ml.cli.lazy import Lazy
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.deleting import confirm_deletion, yes_option
from cloud_ml.cli.options.other_org import other_org_option
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import Job, JobSummary

_ELSEWHERE = {
    "checkpoints": Lazy(
        "cloud_ml.cli.jobs.checkpoints:checkpoints", "List the checkpoints that a job has saved."
    ),
    "clone": Lazy("cloud_ml.cli.jobs.clone:clone", "Submit a copy of a job with other arguments."),
    "compare": Lazy(
        "cloud_ml.cli.jobs.compare:compare",
        "Show what jobs differ in, what matters most first.",
    ),
    "cp": Lazy("cloud_ml.cli.jobs.outputs:cp", "Copy outputs of a job to this machine."),
    "describe": Lazy(
        "cloud_ml.cli.jobs.describing:describe",
        "Tell the story of a job: stages, events, reason, next step.",
    ),
    "export": Lazy(
        "cloud_ml.cli.jobs.resubmit:export", "Print a job as a file that can be submitted."
    ),
    "hp": Lazy(
        "cloud_ml.cli.jobs.tuning_report:hp",
        "Show a study and its trials; takes the name of the study or of a trial.",
    ),
    "list": Lazy("cloud_ml.cli.jobs.job_list:list_jobs", "List jobs, newest first."),
    "logs": Lazy("cloud_ml.cli.jobs.job_log:logs", "Print the output of a job, as it was written."),
    "metrics": Lazy(
        "cloud_ml.cli.jobs.top:metrics", "Show processors and memory of a job's tasks, once."
    ),
    "outputs": Lazy("cloud_ml.cli.jobs.outputs:outputs", "List the files that a job left."),
    "reproduce": Lazy(
        "cloud_ml.cli.jobs.reproduce:reproduce",
        "Run a job again and say whether it gives the same.",
    ),
    "rerun": Lazy("cloud_ml.cli.jobs.resubmit:rerun", "Resubmit a job, optionally with changes."),
    "rm": Lazy(
        "cloud_ml.cli.shortcuts.removing:rm_job",
        "Delete jobs; ask before one that runs.",
        hidden=True,
    ),
    "submit": Lazy("cloud_ml.cli.jobs.submit:submit", "Submit a train job."),
    "top": Lazy("cloud_ml.cli.jobs.top:top", "Show processors and memory of running jobs."),
    "wait": Lazy(
        "cloud_ml.cli.jobs.wait:wait", "Wait until jobs have ended, and exit with their result."
    ),
}


@click.group(cls=JobsGroup, lazy=_ELSEWHERE)
def jobs() -> None:
    """Train jobs."""


@jobs.command()
@click.argument("name", shell_complete=job_names)
@click.option(
    "-f", "--follow", is_flag=True, help="Follow until the job has ended. Ctrl-C stops the output."
)
@output_option()
@pass_session
def events(session: Session, name: str, *, follow: bool, output: str | None) -> int:
    """List what happened to a job, and why."""
    from cloud_ml.cli.display.events import tell, tell_as_it_happens

    if follow:
        return tell_as_it_happens(session.client.get_train_job(name).watch_events(), output)
    return tell(session.client.train_job_events(name), output)


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@click.option(
    "--grace",
    cls=Option,
    aliases=("--grace-period",),
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL, such as 30s; 0 kills at once. Otherwise the job's own.",
)
@click.option("-y", "--yes", is_flag=True, hidden=True)
@other_org_option
@pass_session
def cancel(session: Session, names: tuple[str, ...], *, grace: str | None, yes: bool) -> int:
    """Cancel jobs in any state. What they wrote stays."""
    del yes  # other tools ask; nothing is asked here

    def end(name: str) -> None:
        job = session.client.cancel_train_job(name, grace=grace)
        echo(f"{job.name} {'is cancelled' if job.finished else 'is being stopped'}")

    return each_job(session, names, end)


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@pass_session
def start(session: Session, names: tuple[str, ...]) -> int:
    """Start jobs that were submitted with --save_mode."""
    return each_job(
        session,
        names,
        lambda name: echo(f"{session.client.start_train_job(name).name} is started"),
    )


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@click.option("--wait", is_flag=True, help="Come back when their processes have ended.")
@pass_session
def pause(session: Session, names: tuple[str, ...], *, wait: bool) -> int:
    """Stop jobs until you resume them; they keep their folder and checkpoints."""
    from cloud_ml.cli.display.states import states

    def take_place(name: str) -> None:
        if not wait:
            echo(_paused(session.client.pause_train_job(name)))
            return
        handle = session.client.get_train_job(name)
        handle.pause()
        with spinner(f"{handle.name} is being paused") as say, states(handle, say):
            echo(_paused(handle.wait_until_paused()))

    return each_job(session, names, take_place)


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@pass_session
def resume(session: Session, names: tuple[str, ...]) -> int:
    """Queue paused jobs again. They go on from their newest checkpoints."""
    return each_job(
        session, names, lambda name: echo(_resumed(session.client.resume_train_job(name)))
    )


@jobs.command()
@click.argument("name", shell_complete=job_names)
@click.option("--task", metavar="TASK", help="One task, such as worker-1.")
@pass_session
def stacks(session: Session, name: str, *, task: str | None) -> None:
    """Have a job write the stacks of its Python threads to its log. It runs on."""
    with near_names(session):
        found = session.client.dump_train_job_stacks(name, task)
    selected = f" --task {task}" if task else ""
    echo(
        f"The stacks of {', '.join(found.tasks)} are in the log: cloudml jobs logs {name}{selected}"
    )


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@click.option("--task", metavar="TASK", help="One task, such as worker-1; the others run on.")
@pass_session
def restart(session: Session, names: tuple[str, ...], *, task: str | None) -> int:
    """Replace the running attempt of jobs with a new one.

    The new attempt goes on from the newest checkpoint and costs no retry. A job that waits for its
    next attempt begins it at once. --task restarts one task alone, if the framework can go on.
    """
    if task is not None:
        if len(names) > 1:
            raise click.UsageError("--task is a task of one job")
        with near_names(session):
            session.client.restart_train_job(names[0], task)
        echo(f"{task} of {names[0]} is being restarted")
        return 0
    return each_job(
        session,
        names,
        lambda name: echo(f"{session.client.restart_train_job(name).name} is being restarted"),
    )


def _resumed(job: Job) -> str:
    if job.phase in ("Starting", "Running", "Finishing", "Restarting"):
        return f"{job.name} is not paused: it is {job.phase}"
    if job.phase == "Stopping":
        return f"{job.name} is resumed; it starts again when its processes have ended"
    return f"{job.name} is resumed"


def _paused(job: Job) -> str:
    return f"{job.name} is paused" if job.phase == "Paused" else f"{job.name} is being paused"


@jobs.command()
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=job_names)
@click.option("-a", "--all", "everything", is_flag=True, help="All jobs; scripts need --yes.")
@yes_option
@click.option("--wait", is_flag=True, help="Come back when they are gone and their names are free.")
@click.option(
    "-n", "--is_cluster_name", is_flag=True, help="NAME is that of a cluster, which is its job's."
)
@other_org_option
@pass_session
def delete(
    session: Session,
    names: tuple[str, ...],
    *,
    everything: bool,
    yes: bool,
    wait: bool,
    is_cluster_name: bool,
) -> int:
    """Remove jobs, their logs and their outputs. A job that runs is stopped first."""
    from cloud_ml.cli.display.states import states
    from cloud_ml.cli.jobs.outputs import outputs_that_go

    if bool(names) == everything:
        raise click.UsageError("name the jobs, or give --all")
    if everything:
        found = list(session.client.list_train_jobs(limit=None))
        if not found:
            note("There are no jobs.")
            return 0
        if not yes and not _confirmed(found, session.org):
            note("Nothing is deleted.")
            return 1
        names = tuple(job.name for job in found)
    else:
        confirm_deletion(names, "with logs and outputs", yes=yes)

    def remove(name: str) -> None:
        handle = session.client.get_train_job(name)
        handle.delete()
        goes = outputs_that_go(handle.job)
        if not wait:
            echo(f"{handle.name} is being deleted{goes}")
            return
        with spinner(f"{handle.name} is being deleted") as say, states(handle, say):
            handle.wait_until_gone()
        echo(f"{handle.name} is deleted{goes}")

    return each_job(session, names, remove)


def _confirmed(found: Sequence[JobSummary], org: str | None) -> bool:
    """Whether all jobs are to be deleted."""
    from cloud_ml.models.jobs.job import FINISHED

    running = sum(job.phase not in FINISHED for job in found)
    count = "the only job" if len(found) == 1 else f"all {len(found)} jobs"
    whose = "your organisation" if org is None else f"the organisation {org}"
    what = f"{count} of {whose}" + (f" ({running} not ended)" if running else "")
    if not is_person():
        raise click.UsageError(f"this deletes {what}; add --yes")
    return click.confirm(f"Delete {what}, with logs and outputs?", err=True)

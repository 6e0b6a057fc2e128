"""``cloudml runs wait``."""

from __future__ import annotations

import shlex

import click

from cloud_ml.cli.completion.candidates import experiment_names, run_names
from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.exit_codes import JOB_FAILED, JOB_STOPPED, STILL_GOES_ON
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.options.wait_limit import WaitLimit
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.tracking.run_names import job_or_uid

_EPILOG = (
    f"Exit codes: 0 all are FINISHED. Otherwise the first run that is not decides: {JOB_FAILED} it "
    f"is FAILED, {JOB_STOPPED} it was KILLED; {STILL_GOES_ON} the time is over; 130 you stopped "
    "waiting. The runs go on in both cases. With --experiment, 0 says that none is active, however "
    "they ended."
)
_CODES = {"FINISHED": 0, "KILLED": JOB_STOPPED}


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[RUN...]", shell_complete=run_names)
@click.option(
    "--experiment",
    "-e",
    metavar="NAME",
    shell_complete=experiment_names,
    help="Wait until no run of this experiment is active, those that begin meanwhile among them.",
)
@click.option("--timeout", metavar="TIME", help="Time limit, such as 90s or 2h; none by default.")
@output_option()
@pass_session
def wait(
    session: Session,
    names: tuple[str, ...],
    *,
    experiment: str | None,
    timeout: str | None,
    output: str | None,
) -> int:
    """Wait until runs have ended, with and without a job, by their names or uids; or all runs of an
    experiment.
    """
    if bool(names) is (experiment is not None):
        raise click.UsageError("name runs, or an experiment with --experiment")
    limit = WaitLimit(timeout)
    if experiment is not None:
        return _wait_for_experiment(session, experiment, limit, output)
    return _wait_for_runs(session, names, limit, output)


def _wait_for_runs(
    session: Session, names: tuple[str, ...], limit: WaitLimit, output: str | None
) -> int:
    from cloud_ml.errors import WaitTimedOut

    # All are looked up first: a wrong name is an error before any wait.
    uids = [_find_run(session, name) for name in dict.fromkeys(names)]
    ended = []
    try:
        for uid in uids:
            ended.append(session.client.runs.wait(uid, limit.left()))
            if output is None:
                echo(f"{ended[-1].name} is {ended[-1].state}")
    except WaitTimedOut:
        run = session.client.runs.describe(uid)
        note(f"Timed out after {limit}; {run.name} is still {run.state}")
        return STILL_GOES_ON
    except KeyboardInterrupt:
        note("\nStopped waiting; the runs go on.")
        return INTERRUPTED
    echo_as(output, ended, [run.uid for run in ended])
    return next((code for run in ended if (code := _CODES.get(run.state, JOB_FAILED))), 0)


def _find_run(session: Session, name: str) -> str:
    """The uid of a run.

    Raises:
        NotFound: There is none. If an experiment has that name, the hint says how to wait for it.
    """
    from cloud_ml.errors import NotFound

    try:
        return job_or_uid(session, name)[1]
    except NotFound as missing:
        if any(one.name == name for one in session.client.experiments.list()):
            missing.hint = (
                "An experiment has that name; wait for its runs: "
                f"cloudml runs wait --experiment {shlex.quote(name)}"
            )
        raise


def _wait_for_experiment(session: Session, name: str, limit: WaitLimit, output: str | None) -> int:
    from cloud_ml.errors import WaitTimedOut
    from cloud_ml.sdk.experiments import name_runs

    try:
        found = session.client.experiments.wait(name, limit.left())
    except WaitTimedOut:
        id_ = session.client.experiments.find(name).id
        page = session.client.experiments.active_runs(id_)
        note(f"Timed out after {limit}; {name} still has active runs: {name_runs(page)}")
        return STILL_GOES_ON
    except KeyboardInterrupt:
        note("\nStopped waiting; the runs go on.")
        return INTERRUPTED
    if not echo_as(output, [found], [found.name]):
        echo(f"No run of {found.name} is active.")
    return 0

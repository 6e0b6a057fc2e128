"""``cloudml runs wait``."""

from __future__ import annotations

import click

from cloud_ml.cli.completing import run_names
from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.exit_codes import JOB_FAILED, JOB_STOPPED, STILL_GOES_ON
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.run_names import job_or_uid
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.wait_limit import WaitLimit

_EPILOG = (
    f"Exit codes: 0 all are FINISHED. Otherwise the first run that is not decides: {JOB_FAILED} it "
    f"is FAILED, {JOB_STOPPED} it was KILLED; {STILL_GOES_ON} the time is over; 130 you stopped "
    "waiting. The runs go on in both cases."
)
_CODES = {"FINISHED": 0, "KILLED": JOB_STOPPED}


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=run_names)
@click.option("--timeout", metavar="TIME", help="Time limit, such as 90s or 2h; none by default.")
@output_option()
@pass_session
def wait(
    session: Session, names: tuple[str, ...], *, timeout: str | None, output: str | None
) -> int:
    """Wait until runs have ended, with and without a job, by their names or uids."""
    from cloud_ml.errors import WaitTimedOut

    limit = WaitLimit(timeout)
    # All are looked up first: a wrong name is an error before any wait.
    uids = [job_or_uid(session, name)[1] for name in dict.fromkeys(names)]
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

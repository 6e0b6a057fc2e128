"""``cloudml jobs wait``."""

from __future__ import annotations

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import echo_as, note, output_option, without_secrets
from cloud_ml.cli.exit_codes import JOB_FAILED, JOB_STOPPED, STILL_GOES_ON, exit_code_of
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.options.wait_limit import WaitLimit
from cloud_ml.cli.session import Session, pass_session

_EPILOG = (
    "Exit codes: 0 all succeeded. Otherwise the first job that did not succeed decides: its own "
    f"exit code if its code failed (128 + n for signal n, 134 if it hung), {JOB_FAILED} it failed otherwise, "
    f"{JOB_STOPPED} it was cancelled; {STILL_GOES_ON} the time is over; 130 you stopped waiting. "
    "The jobs keep running in both cases."
)


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)
@click.option("--timeout", metavar="TIME", help="Time limit, such as 90s or 2h; none by default.")
@output_option()
@pass_session
def wait(
    session: Session, names: tuple[str, ...], *, timeout: str | None, output: str | None
) -> int:
    """Wait until jobs have ended."""
    from cloud_ml.cli.display.watching import conclude, wait_for
    from cloud_ml.errors import WaitTimedOut
    from cloud_ml.models import codec

    limit = WaitLimit(timeout)
    # All are looked up first: a wrong name is an error before any wait.
    handles = [session.client.get_train_job(name) for name in dict.fromkeys(names)]
    ended = []
    try:
        for handle in handles:
            job = wait_for(handle, limit.left())
            conclude(handle, job)
            ended.append(job)
    except WaitTimedOut:
        note(f"Timed out after {limit}; {handle.name} is still {handle.phase}")
        return STILL_GOES_ON
    except KeyboardInterrupt:
        note("\nStopped waiting; the jobs keep running.")
        return INTERRUPTED
    documents = [{**codec.encode(job), "spec": without_secrets(job.spec)} for job in ended]
    echo_as(output, documents, [job.name for job in ended])
    return next((code for code in map(exit_code_of, ended) if code), 0)

"""How commands find the run that a name or a uid means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloud_ml.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from cloud_ml.cli.session import Session
    from cloud_ml.sdk.jobs.handles import JobHandle

_UID = re.compile(r"[0-9a-f]{32}")
_SHOWN = 4


def job_or_uid(session: Session, run: str) -> tuple[JobHandle | None, str]:
    """The job of that name, or the uid of a run: its own, or that of the only run of that name.

    Raises:
        NotFound: There is neither.
        InvalidRequest: Several runs have the name.
    """
    if _UID.fullmatch(run):
        return None, run
    try:
        job = session.client.get_train_job(run)
    except NotFound:
        if (uid := _uid_of_name(session, run)) is None:
            raise NotFound(
                f"there is no run {run[:200]}",
                field="run",
                value=run[:200],
                allowed="the name or the uid of a run or a job",
                hint="The newest are in: cloudml runs list",
            ) from None
        return None, uid
    return job, job.uid


def _uid_of_name(session: Session, run: str) -> str | None:
    if "'" in run:
        return None  # a filter cannot say it
    named = f"attributes.run_name = '{run}'"
    found = list(session.client.runs.search(filter=named, limit=_SHOWN))
    if len(found) > 1:
        raise InvalidRequest(
            f"several runs have the name {run!r}",
            field="run",
            value=run,
            allowed="a uid, such as " + " or ".join(one.uid for one in found),
        )
    return found[0].uid if found else None

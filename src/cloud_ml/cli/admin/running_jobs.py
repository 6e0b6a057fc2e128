"""What continues although its user or organisation may do nothing more."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING

from cloud_ml.cli.display.output import note
from cloud_ml.errors import CloudMlError

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient

_MOST_COUNTED = 100
_STATES = "Queued,Restarting,Starting,Running,Finishing"


def note_of_organisation(client: CloudMlClient, org: str) -> None:
    """Say how many jobs and model services of an organisation continue, if any do."""
    with contextlib.suppress(CloudMlError):  # the change itself is done
        for quota in client.quota.show(org=org):
            used = {line.kind: line.count_used for line in quota.items}
            counts = [
                _count(used.get(kind, 0), word)
                for kind, word in (("train", "job"), ("model", "model service"))
                if used.get(kind)
            ]
            if counts:
                note(f"Of {quota.org}, these continue: {' and '.join(counts)}.")


def note_of_user(client: CloudMlClient, user: str) -> None:
    """Say how many jobs of a user of the caller's organisation continue, if any do."""
    with contextlib.suppress(CloudMlError):
        jobs = client.list_train_jobs(state=_STATES, user=user, limit=_MOST_COUNTED)
        if number := len(list(islice(jobs, _MOST_COUNTED))):
            more = " or more" if number == _MOST_COUNTED else ""
            note(
                f"Of {user}, these continue: {_count(number, 'job')}{more}. To see them: "
                f"cloudml jobs list --user {user} --state {_STATES}"
            )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"

"""What happened to a job or a service: ``jobs events`` and ``models events``, now and as it
happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cloud_ml.cli.display.output import echo, echo_as, echo_table, local_time
from cloud_ml.cli.display.terminal import plain
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.models.jobs.job import JobEvent

_HEADER = ("TIME", "TYPE", "REASON", "MESSAGE")


def tell(found: Sequence[JobEvent], output: str | None) -> int:
    """Print events as a table, or as was asked for; returns 0."""
    if not echo_as(output, found, (event.reason for event in found)):
        echo_table(_HEADER, map(_row, found))
    return 0


def tell_as_it_happens(events: Iterable[JobEvent], output: str | None) -> int:
    """Print each event when it comes; returns 0, or 130 when the user has seen enough."""
    try:
        if output is None:
            echo(_line(_HEADER))
        for event in events:
            if not echo_as(output, event, event.reason):
                echo(_line(_row(event)))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _row(event: JobEvent) -> tuple[str, str, str, str]:
    return local_time(event.at), event.type, event.reason, event.message


def _line(row: Sequence[str]) -> str:
    """As in a table, of which the other rows are not known yet."""
    time, kind, reason, message = map(plain, row)
    return f"{time:<19}  {kind:<7}  {reason:<18}  {message}"

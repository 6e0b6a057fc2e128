"""What events tell of the progress of a job: each quarter of its work, once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cloud_ml.domain.records import Event
from cloud_ml.domain.workloads.failover_sentences import span
from cloud_ml.domain.workloads.progress import Progress, part_done
from cloud_ml.domain.workloads.reasons import Reason

_QUARTERS = 4
_METRICS = 5
_DONE = re.compile(r"(\d+)% done")


def quarters_done(progress: Progress) -> int:
    """How many quarters of the work are done: 0 to 3, since the end has an event of its own. 0 where
    the part that is done is not known.
    """
    done = part_done(progress.step, progress.of, progress.fraction) or 0.0
    return min(int(done * _QUARTERS), _QUARTERS - 1)


def reported_quarters(events: Iterable[Event]) -> int:
    """How many quarters events have told of. An attempt that begins anew tells none again."""
    matches = [_DONE.match(event.message) for event in events if event.reason == Reason.PROGRESS]
    return max((int(one[1]) * _QUARTERS // 100 for one in matches if one), default=0)


def sentence(progress: Progress, remaining_s: float | None) -> str:
    """Such as ``50% done: step 5 of 10, about 3m20s left, loss 0.3``."""
    done = part_done(progress.step, progress.of, progress.fraction) or 0.0
    words = []
    if progress.step is not None:
        words.append(f"step {progress.step}" + (f" of {progress.of}" if progress.of else ""))
    if remaining_s:
        words.append(f"about {span(remaining_s)} left")
    shown = list(progress.metrics.items())[:_METRICS]
    words += [f"{name} {value:.4g}" for name, value in shown]
    details = ", ".join(words)
    return f"{int(done * 100)}% done" + (f": {details}" if details else "")

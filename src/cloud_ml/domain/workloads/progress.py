"""What tasks report of their progress, and how far an attempt has come. Pure.

``cloud_ml.job`` writes the reports, in the job: lines of JSON in a file of the task's own. Nothing
of them is believed that is no number within bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint

READ_BYTES = 1 << 16
"""So much of the end of the reports is read."""
MOST_METRICS = 32
_LONGEST_LINE, _LONGEST_NAME = 8192, 100
_LARGEST_STEP = 1 << 62
_MOST_REMAINING_S = 100 * 365 * 86_400.0
"""Tasks write the time and the part that is done: of a tiny part it may be infinite."""


@dataclass(frozen=True)
class Progress:
    """What a task reported last: the step, of so many, the part of the work that is done (0 to 1),
    and figures such as the loss.
    """

    at: datetime
    step: int | None = None
    of: int | None = None
    fraction: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def part_done(step: int | None, of: int | None, fraction: float | None) -> float | None:
    """The part of the work that is done; ``None`` if it is not known."""
    if fraction is not None:
        return fraction
    return min(step / of, 1.0) if step is not None and of else None


def remaining_s(progress: Progress, begun: float, ran_s: float) -> float | None:
    """About how many seconds of work were left at a report, for a task that had run for ``ran_s`` from
    the part ``begun`` on; ``None`` if nobody can tell, or it is more than a hundred years.
    """
    done = part_done(progress.step, progress.of, progress.fraction)
    if done is None or done <= begun or ran_s <= 0:
        return None
    remaining = (1 - done) / (done - begun) * ran_s
    return remaining if remaining <= _MOST_REMAINING_S else None


@dataclass(frozen=True)
class Milestone:
    """How far an attempt has come: the highest step that was reported or saved, the largest part of
    the work, and the newest checkpoint without a step.
    """

    step: int | None = None
    fraction: float | None = None
    checkpoint: str = ""

    def is_beyond(self, other: Milestone) -> bool:
        """Whether something was reached that ``other`` has not reached."""
        return (
            _is_more(self.step, other.step)
            or _is_more(self.fraction, other.fraction)
            or self.checkpoint not in ("", other.checkpoint)
        )

    def with_(self, other: Milestone) -> Milestone:
        """The farthest of both; of checkpoints, that of ``other``."""
        return Milestone(
            other.step if _is_more(other.step, self.step) else self.step,
            other.fraction if _is_more(other.fraction, self.fraction) else self.fraction,
            other.checkpoint or self.checkpoint,
        )


NOTHING_REACHED = Milestone()


@dataclass(frozen=True)
class RepeatedEnd:
    """The last end of an attempt or task, and how often in a row it was the same one without
    progress in between.
    """

    role: str = ""
    reason: str = ""
    code: int | None = None
    times: int = 0
    milestone: Milestone = NOTHING_REACHED

    def followed_by(
        self, role: str, reason: str, code: int | None, milestone: Milestone
    ) -> RepeatedEnd:
        """The same after another end."""
        same = (role, reason, code) == (self.role, self.reason, self.code)
        progressed = milestone.is_beyond(self.milestone)
        times = self.times + 1 if same and not progressed else 1
        return RepeatedEnd(role, reason, code, times, self.milestone.with_(milestone))


NO_END = RepeatedEnd()
MOST_SAME_ENDS = 3
"""After so many, nothing starts again."""


def milestone_of(reports: Iterable[Progress], saved: Iterable[NotedCheckpoint]) -> Milestone:
    """How far tasks with these reports and checkpoints have come."""
    milestone = NOTHING_REACHED
    for one in reports:
        milestone = milestone.with_(Milestone(one.step, one.fraction))
    for checkpoint in sorted(saved, key=lambda one: one.at):
        # Without a step, a new time for the same path means a newer checkpoint.
        name = f"{checkpoint.path} {checkpoint.at.timestamp()}" if checkpoint.step is None else ""
        milestone = milestone.with_(Milestone(checkpoint.step, checkpoint=name))
    return milestone


def read_reports(note: bytes) -> Progress | None:
    """What the end of the reports says: the last of each figure. Lines that say nothing are left
    out: a task may have been killed while it wrote one.
    """
    found: Progress | None = None
    for line in note.splitlines():
        if len(line) <= _LONGEST_LINE and (entry := _entry(line)) is not None:
            found = _merge_progress(found, entry)
    return found


def _merge_progress(before: Progress | None, one: Progress) -> Progress:
    if before is None:
        return one
    metrics = dict([*before.metrics.items(), *one.metrics.items()][-MOST_METRICS:])
    if one.step is None and one.fraction is None:
        return replace(before, at=one.at, metrics=metrics)
    return replace(
        one,
        of=before.of if one.of is None else one.of,
        step=before.step if one.step is None else one.step,
        fraction=before.fraction if one.fraction is None else one.fraction,
        metrics=metrics,
    )


def _entry(line: bytes) -> Progress | None:
    try:
        entry = json.loads(line)
        moment = datetime.fromtimestamp(entry["time"], UTC)
        metrics = entry.get("metrics") or {}
        known = {name: float(value) for name, value in metrics.items() if _is_figure(name, value)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        return None
    except RecursionError:
        return None
    step, of = _whole(entry.get("step")), _whole(entry.get("of"))
    fraction = entry.get("fraction")
    if step is not None and of:
        fraction = min(1.0, step / of)
    if not _is_number(fraction) or not 0 <= fraction <= 1:
        fraction = None
    shown = dict([*known.items()][-MOST_METRICS:])
    return Progress(moment, step, of, None if fraction is None else float(fraction), shown)


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_STEP:
        return value
    return None


def _is_figure(name: str, value: Any) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable() and _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # Compare first: isfinite raises OverflowError for an integer that is too large for a float.
    return abs(value) < 1e300 and math.isfinite(value)


def _is_more(one: float | None, other: float | None) -> bool:
    return one is not None and (other is None or one > other)

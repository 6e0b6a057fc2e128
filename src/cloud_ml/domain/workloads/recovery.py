"""What failures cost a job that goes on after them: time until it runs again, and work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint

STAGES = ("detect", "end", "stage", "start")
MOST_RECOVERIES = 20
"""So many recoveries of tasks are kept until somebody looks."""


@dataclass(frozen=True)
class Recovery:
    """A restart after a failure: of one task alone, or ``of_gang``, of all tasks as another attempt.

    ``down_s`` is the time from the end to running again, with the delay that a restart waits.
    ``stages`` divides it, without the delay. ``lost_s`` is the work that was lost; ``None`` if that
    is not known. ``number`` counts the recoveries of tasks in an attempt.
    """

    role: str
    reason: str
    down_s: float = 0.0
    lost_s: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    of_gang: bool = False
    number: int = 0


@dataclass(frozen=True)
class GangFailure:
    """The failure of an attempt after which another one is to follow."""

    role: str
    reason: str
    at: datetime
    lost_s: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Recoveries:
    """What the failures of a job have cost so far, in seconds.

    There were ``count`` restarts, the last ones ``latest``: those that were noted together. Of the
    tasks' own in ``attempt``, the first ``noted`` are among them. ``failure`` is that of the last
    attempt until the next one runs.
    """

    count: int = 0
    down_s: float = 0.0
    lost_s: float = 0.0
    latest: tuple[Recovery, ...] = ()
    attempt: int = 1
    noted: int = 0
    failure: GangFailure | None = None

    def since(self, before: Recoveries) -> tuple[Recovery, ...]:
        """Those that were noted after ``before``, as far as they were kept."""
        return self.latest[-(self.count - before.count) :] if self.count > before.count else ()

    def with_tasks(self, attempt: int, reported: tuple[Recovery, ...]) -> Recoveries:
        """With what an engine tells of restarts of tasks, of which some are noted already."""
        noted = self.noted if attempt == self.attempt else 0
        news = tuple(one for one in reported if one.number > noted)
        if not news:
            return self
        last = max(one.number for one in news)
        return replace(self._with(news, last - noted), attempt=attempt, noted=last)

    def after_failure(self, failure: GangFailure) -> Recoveries:
        """With the failure of an attempt. One that is still to be recovered from is kept, with its
        beginning: the attempt in between never ran.
        """
        return self if self.failure is not None else replace(self, failure=failure)

    def resumed(self, now: datetime) -> Recoveries:
        """With a recovery that goes on now, after a pause: nobody waited for it before."""
        if self.failure is None:
            return self
        return replace(self, failure=replace(self.failure, at=now))

    def running_again(self, started_at: datetime, stages: Mapping[str, float]) -> Recoveries:
        """With the recovery from the last failure, since another attempt runs."""
        failure = self.failure
        if failure is None:
            return self
        down_s = max(0.0, (started_at - failure.at).total_seconds())
        divided = {**failure.stages, **stages}
        recovery = Recovery(
            failure.role, failure.reason, down_s, failure.lost_s, divided, of_gang=True
        )
        return replace(self._with((recovery,), 1), failure=None)

    def _with(self, news: tuple[Recovery, ...], count: int) -> Recoveries:
        return replace(
            self,
            count=self.count + count,
            down_s=self.down_s + sum(one.down_s for one in news),
            lost_s=self.lost_s + sum(one.lost_s or 0.0 for one in news),
            latest=news,
        )


NO_RECOVERIES = Recoveries()


def with_recovery(known: Sequence[Recovery], one: Recovery) -> tuple[Recovery, ...]:
    """The last recoveries of an attempt, with another one under the next number. Restarts that
    somebody asked for have none.
    """
    number = known[-1].number + 1 if known else 1
    return (*known, replace(one, number=number))[-MOST_RECOVERIES:]


def lost_work_s(
    started_at: datetime | None, ended_at: datetime | None, checkpoint: NotedCheckpoint | None
) -> float | None:
    """The work that an end has lost: since the checkpoint, or the start if that is later. What a job
    says of the time of its checkpoint counts only in between.
    """
    if started_at is None or ended_at is None:
        return None
    since = started_at if checkpoint is None else max(started_at, checkpoint.at)
    return max(0.0, (ended_at - since).total_seconds())

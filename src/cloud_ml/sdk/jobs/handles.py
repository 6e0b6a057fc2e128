# Made of aio/jobs/handles.py by tools/twins.py: change that one, then run `make format`.
"""A job one can hold on to: wait for it, read its log, end it."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from contextlib import closing
from datetime import datetime

from cloud_ml.errors import Conflict, NotFound, TransportError, TryAgain, WaitTimedOut
from cloud_ml.models.jobs.checkpoints import JobCheckpoint
from cloud_ml.models.jobs.job import Job, JobEvent, JobStacks, JobTasks
from cloud_ml.models.jobs.outputs import OutputFile
from cloud_ml.models.tracking.metrics import MetricPoint, MetricSeries, SummaryTag
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.jobs.calls import JobCalls
from cloud_ml.sdk.jobs.follow import follow_log
from cloud_ml.sdk.timeouts import LONG_POLL_S, PATIENCE
from cloud_ml.sdk.watching import follow_changes, follow_events

_STARTED = ("Starting", "Running", "Finishing")


class JobHandle:
    """A job on the server, and what was last heard of it (``job``).

    It stands for the very job it was made for, not for another one that takes its name later. Every
    method that asks the server raises ``NotFound`` once the job is deleted, and ``CloudMlError`` as
    the client's methods do.
    """

    def __init__(self, calls: JobCalls, job: Job) -> None:
        self._calls = calls
        self._failures = 0  # in a row, while it is waited for
        self.job = job

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, phase={self.phase!r}, attempt={self.job.attempt})"

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def uid(self) -> str:
        """What tells the job from all others, now and later."""
        return self.job.uid

    @property
    def phase(self) -> str:
        """Where the job stood when it was last heard of."""
        return self.job.phase

    @property
    def finished(self) -> bool:
        """Whether nothing can follow any more."""
        return self.job.finished

    @property
    def succeeded(self) -> bool:
        """Whether the job ended well."""
        return self.job.succeeded

    def refresh(self) -> Job:
        """Ask how the job stands."""
        self.job = self._calls.get(self.uid)
        return self.job

    def await_change(self, timeout: float | None = None) -> Job:
        """The job as soon as it has changed, at the latest after ``timeout`` seconds (or half a
        minute).
        """
        wait_s = LONG_POLL_S if timeout is None else min(timeout, LONG_POLL_S)
        self.job = self._calls.get(self.uid, newer_than=self.job.revision, wait_s=wait_s)
        return self.job

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, well or not; the caller looks at ``succeeded``.

        A server that restarts meanwhile is waited for, about two minutes.

        Args:
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            WaitTimedOut: It has not ended by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.job.finished:
            self._next_before(deadline, timeout)
        return self.job

    def wait_until_paused(self, timeout: float | None = None) -> Job:
        """Wait until a job that is being paused has given up its place.

        Args:
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            Conflict: It has ended, or somebody has resumed it meanwhile.
            WaitTimedOut: It is not paused by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        attempt = self.job.attempt
        while self.phase != "Paused":
            resumed = self.job.attempt > attempt and self.phase in _STARTED
            if self.finished or resumed:
                raise Conflict(f"{self.name} is not paused: it is {self.phase}", field="phase")
            self._next_before(deadline, timeout)
        return self.job

    def wait_until_gone(self) -> None:
        """Wait until a deleted job, its log and its folders are gone and its name is free."""
        try:
            while True:
                self._next(LONG_POLL_S)
        except NotFound:
            return

    def tasks(self) -> JobTasks:
        """The tasks of the current attempt and what they use now."""
        return self._calls.tasks(self.uid)

    def events(self, *, after: int = 0) -> list[JobEvent]:
        """What happened to the job, in order; only what came after the event with the id
        ``after``.
        """
        return self._calls.events(self.uid, after=after)

    def checkpoints(self) -> list[JobCheckpoint]:
        """The last hundred checkpoints that the job has saved and that are still there, the oldest
        first. ``cloud_ml.job.saved`` notes one.
        """
        return self._calls.checkpoints(self.uid)

    def series(self) -> list[MetricSeries]:
        """The metrics that the job has reported: how many points each has, its extremes and its
        last value. ``cloud_ml.job.report`` reports one.
        """
        return self._calls.series(self.uid).items

    def summaries(self) -> list[SummaryTag]:
        """The histograms, images, audio and texts in the job's TensorBoard event files: tag, kind,
        how many, and the last step. Look at them with a TensorBoard.
        """
        return self._calls.series(self.uid).summaries

    def points(
        self,
        metric: str,
        *,
        task: str | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        most: int = 1000,
        earlier: bool = False,
    ) -> list[MetricPoint]:
        """Points of a metric in the order of their steps.

        Where there are more than ``most``, these are the lowest and the highest value of each part
        of the range, and its first and last point.

        Args:
            metric: Its name, such as ``loss``.
            task: Whose; by default that of the first task that has reported it.
            from_step: The first step that is wanted.
            to_step: The last one.
            most: At most so many points.
            earlier: Only points of earlier attempts that a later one has repeated.

        Raises:
            NotFound: The job has not reported this metric.
            InvalidRequest: The range is empty, or too many points are wanted.
        """
        query = {
            "task": task,
            "from": from_step,
            "to": to_step,
            "points": most,
            "earlier": True if earlier else None,
        }
        return self._calls.points(self.uid, metric, query)

    def outputs(self) -> Generator[OutputFile]:
        """The files that the job left in its working directory, in byte order of their paths.

        They are stored when the job ends. ``client.storage.download`` takes the ``uri`` of each.
        """
        with closing(self._calls.outputs(self.uid)) as files:
            yield from files

    def watch_events(self, *, after: int = 0) -> Generator[JobEvent]:
        """What happened to the job and what happens, as it does, until it has ended; cut
        connections are made anew.

        Only what came after the event with the id ``after``.
        """
        stream = follow_events(
            lambda at: self._calls.watch_events(self.uid, after=at), after=after or None
        )
        with closing(stream) as events:
            yield from events

    def watch(self) -> Generator[Job]:
        """The job as it stands, and again after each change, until it has ended or is gone; nothing
        is polled.

        Who is slow is given the newest state, not each step. Cut connections are made anew.
        """
        with closing(
            follow_changes(lambda after: self._calls.watch(self.uid, after=after))
        ) as changes:
            for change in changes:
                if change.job is None:
                    return
                self.job = change.job
                yield change.job
                if change.job.finished:
                    return

    def logs(
        self,
        *,
        follow: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        task: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        installation: bool = True,
        timestamps: bool = False,
    ) -> Generator[bytes]:
        """The output of a task in chunks, as it was written.

        Args:
            follow: Go on until the job has ended, across cut connections.
            lines: Only the last so many lines of what there is now.
            attempt: Only this attempt, counted from 1; otherwise all, one behind the other.
            task: Such as ``worker-0``; otherwise the lines of all tasks, each behind the name of
                its task.
            role: Such as ``worker``: only the lines of its tasks.
            since: Only what was written then or later, to the second; not together with ``lines``.
            installation: False leaves out what was written before and after the code: only the
                output of the code comes, byte for byte.
            timestamps: Put a time in UTC before each line.
        """
        source = _Log(
            self._calls,
            self.uid,
            attempt,
            task,
            role=role,
            installation=installation,
            timestamps=timestamps,
        )
        if follow:
            position = 0
            if since is not None:
                with source.read(lines=lines, since=since) as old:
                    # Only the head of this answer is of use: its body is left unread.
                    position = int(old.headers["cloudml-log-offset"])
            with closing(
                follow_log(source, lines=lines, attempt=attempt, position=position)
            ) as chunks:
                yield from chunks
            return
        with source.read(lines=lines, since=since) as answer:
            yield from answer

    def start(self) -> Job:
        """Queue a job that was submitted with ``save_mode``.

        Raises:
            Conflict: It has been started and has ended, or is being stopped.
        """
        self.job = self._calls.start(self.uid)
        return self.job

    def pause(self) -> Job:
        """Have the job give up its place: its processes end within their grace time.

        Raises:
            Conflict: It has ended, or is being stopped.
        """
        self.job = self._calls.pause(self.uid)
        return self.job

    def resume(self) -> Job:
        """Queue the paused job again; its next attempt goes on from its newest checkpoint.

        Raises:
            Conflict: It has ended, or is being stopped.
        """
        self.job = self._calls.resume(self.uid)
        return self.job

    def dump_stacks(self, task: str | None = None) -> JobStacks:
        """Have tasks that run write the stacks of their Python threads to their logs; see
        ``dump_train_job_stacks``.
        """
        return self._calls.dump_stacks(self.uid, task)

    def restart(self, task: str | None = None) -> Job:
        """Have another attempt take the place of the one that runs, or one task start again; see
        ``restart_train_job``.

        Raises:
            Conflict: The job is saved or paused, has ended, or is being stopped; or the task cannot
                start again alone.
        """
        self.job = self._calls.restart(self.uid, task)
        return self.job

    def cancel(self, *, grace: str | None = None) -> Job:
        """End the job wherever it stands; ``grace`` is as in ``cancel_train_job``.

        Raises:
            Conflict: It has ended already.
        """
        self.job = self._calls.cancel(self.uid, grace=grace)
        return self.job

    def delete(self) -> Job:
        """Ask for the job's removal: it is stopped, and its log goes with it."""
        self.job = self._calls.delete(self.uid, self.job)
        return self.job

    def _next_before(self, deadline: float | None, timeout: float | None) -> None:
        """Wait for a change until ``deadline`` (monotonic time), ``timeout`` after the start."""
        left = LONG_POLL_S if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimedOut(f"{self.name} is still {self.phase} after {timeout:g} s")
        self._next(min(left, LONG_POLL_S))

    def _next(self, wait_s: float) -> None:
        """Wait so long for a change; a server that is away is given the same patience as a log
        that is followed.
        """
        try:
            self.job = self._calls.get(self.uid, newer_than=self.job.revision, wait_s=wait_s)
        except (TransportError, TryAgain):
            self._failures += 1
            if self._failures >= PATIENCE.attempts:
                self._failures = 0
                raise
            delay_s = PATIENCE.backoff(self._failures, random.random())  # noqa: S311 - spreads retries, guards nothing
            pause(min(delay_s, wait_s))
        else:
            self._failures = 0


class _Log:
    """The ``LogSource`` of one task of one job."""

    def __init__(
        self,
        calls: JobCalls,
        uid: str,
        attempt: int | None,
        task: str | None,
        *,
        role: str | None,
        installation: bool,
        timestamps: bool,
    ) -> None:
        self._calls = calls
        self._uid = uid
        self._attempt = attempt
        self._task = task
        self._role = role
        self._installation = installation
        self._timestamps = timestamps

    def open(self, *, follow: bool, offset: int = 0) -> Answer:
        return self.read(follow=follow, offset=offset)

    def read(
        self,
        *,
        follow: bool = False,
        offset: int = 0,
        lines: int | None = None,
        since: datetime | None = None,
    ) -> Answer:
        return self._calls.log(
            self._uid,
            follow=follow,
            attempt=self._attempt,
            task=self._task,
            role=self._role,
            offset=offset,
            lines=lines,
            since=since,
            installation=self._installation,
            timestamps=self._timestamps,
        )

    def job(self, newer_than: int | None = None) -> Job:
        return self._calls.get(self._uid, newer_than=newer_than, wait_s=LONG_POLL_S)

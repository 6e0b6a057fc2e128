"""What the client can do with train jobs. ``AsyncCloudMlClient`` has these methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from cloud_ml.aio.jobs.submission import AsyncJobSubmission

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cloud_ml.aio.jobs.handles import AsyncJobHandle
    from cloud_ml.models.jobs.checkpoints import JobCheckpoint
    from cloud_ml.models.jobs.job import Job, JobChange, JobEvent, JobStacks, JobSummary, JobTasks
    from cloud_ml.models.jobs.outputs import OutputFile
    from cloud_ml.models.tracking.metrics import JobSeries, MetricSeries, SummaryTag


class AsyncTrainJobs(AsyncJobSubmission):
    """Train jobs, by name or uid."""

    async def get_train_job(self, name: str) -> AsyncJobHandle:
        """A job to hold on to, by name or uid.

        Raises:
            NotFound: There is none.
        """
        return self._handle(await self._jobs.get(name))

    async def describe_train_job(self, name: str) -> Job:
        """A job as it stands.

        Raises:
            NotFound: There is none.
        """
        return await self._jobs.get(name)

    def list_train_jobs(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        framework: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
        details: bool = False,
        metrics: Sequence[str] = (),
    ) -> AsyncGenerator[JobSummary]:
        """Jobs, newest first, fetched as they are iterated over. A job must meet all conditions.

        Args:
            state: Only jobs in these phases or states, separated by commas, such as
                ``running,failed``.
            name: Only the job of this name, or with a ``*`` at the end those whose name begins so.
            framework: Only jobs that asked for this framework, or ran with it.
            user: Only jobs that this user submitted.
            labels: Only jobs with all of these labels.
            created_after: Only jobs submitted then or later; a time without a zone is local.
            created_before: Only jobs submitted earlier.
            limit: At most so many.
            details: Ask for ``JobSummary.details``, too: reason, times, exit code, arguments.
            metrics: Ask for the last values of these metrics, too: ``JobSummary.metrics``.

        Raises:
            InvalidRequest: There is no such state, or a condition is malformed.
        """
        from cloud_ml.sdk.jobs.filters import JobFilters

        filters = JobFilters(
            state=state,
            name=name,
            framework=framework,
            user=user,
            labels=labels or {},
            created_after=created_after,
            created_before=created_before,
            details=details,
            metrics=metrics,
        )
        return self._jobs.all(filters, limit=limit)

    def watch_train_jobs(self, *, after: int | None = None) -> AsyncGenerator[JobChange]:
        """Every change of every job of the organisation as it happens, for as long as one iterates;
        nothing is polled.

        Who is slow is told the newest state of what changed, not each step. Cut connections are
        made anew, and nothing is lost over them. After the server's database was restored from a
        backup, every job is told as it stands then; jobs that the backup does not have are not
        told.

        Args:
            after: Begin behind this revision (of a change, or of a list), up to a week ago;
                otherwise now.
        """
        from cloud_ml.aio.watching import follow_changes

        return follow_changes(
            lambda at: self._jobs.watch(after=at), after=after, relist=self._jobs.relisted
        )

    async def train_job_events(self, name: str, *, after: int = 0) -> list[JobEvent]:
        """What happened to a job, in order; only what came after the event with the id ``after``.

        Raises:
            NotFound: There is no such job.
        """
        return await self._jobs.events(name, after=after)

    async def train_job_tasks(self, name: str) -> JobTasks:
        """The tasks of a job's current attempt and what they use now.

        Raises:
            NotFound: There is no such job.
        """
        return await self._jobs.tasks(name)

    async def train_job_checkpoints(self, name: str) -> list[JobCheckpoint]:
        """The checkpoints that a job has saved; see ``AsyncJobHandle.checkpoints``.

        Raises:
            NotFound: There is no such job.
        """
        return await self._jobs.checkpoints(name)

    async def train_job_series(self, name: str) -> list[MetricSeries]:
        """The metrics that a job has reported; see ``AsyncJobHandle.series``.

        Raises:
            NotFound: There is no such job.
        """
        return (await self._jobs.series(name)).items

    async def train_job_summaries(self, name: str) -> list[SummaryTag]:
        """The histograms, images, audio and texts in a job's event files; see
        ``AsyncJobHandle.summaries``.

        Raises:
            NotFound: There is no such job.
        """
        return (await self._jobs.series(name)).summaries

    async def train_job_metrics(self, name: str) -> JobSeries:
        """What ``train_job_series`` and ``train_job_summaries`` answer, in one request.

        Raises:
            NotFound: There is no such job.
        """
        return await self._jobs.series(name)

    def train_job_outputs(self, name: str) -> AsyncGenerator[OutputFile]:
        """The files that a job left in its working directory; see ``AsyncJobHandle.outputs``.

        Raises:
            NotFound: There is no such job.
        """
        return self._jobs.outputs(name)

    async def download_train_job_outputs(
        self, name: str, target: Path, *, path: str = ""
    ) -> list[Path]:
        """Write the files that a job left below the folder ``target``, and return where they are.

        With ``path`` only that file, or what is below that folder.

        Raises:
            NotFound: There is no such job, or it left no such file.
            InvalidRequest: A file cannot be written.
        """
        from cloud_ml.aio.jobs.outputs import download_outputs

        return await download_outputs(self._jobs, self.storage, name, target, path=path)

    async def train_job_logs(
        self,
        name: str,
        *,
        follow: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        task: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        installation: bool = True,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """The output of a job's task in chunks; see ``AsyncJobHandle.logs``.

        Raises:
            NotFound: There is no such job.
            InvalidRequest: There is no such task or attempt.
        """
        job = await self.get_train_job(name)
        chosen = job.logs(
            follow=follow,
            lines=lines,
            attempt=attempt,
            task=task,
            role=role,
            since=since,
            installation=installation,
            timestamps=timestamps,
        )
        async with aclosing(chosen) as chunks:
            async for chunk in chunks:
                yield chunk

    async def cancel_train_job(self, name: str, *, grace: str | None = None) -> Job:
        """End a job wherever it stands; what it wrote stays.

        ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``, instead of the
        job's own. A stop that goes on is shortened by a later one with less.

        Raises:
            NotFound: There is none.
            Conflict: It has ended already.
        """
        return await self._jobs.cancel(name, grace=grace)

    async def start_train_job(self, name: str) -> Job:
        """Queue a job that was submitted with ``save_mode``.

        Raises:
            NotFound: There is none.
            Conflict: It has been started and has ended, or is being stopped.
        """
        return await self._jobs.start(name)

    async def pause_train_job(self, name: str) -> Job:
        """Have a job give up its place until it is resumed; its processes end within their grace
        time.

        Raises:
            NotFound: There is none.
            Conflict: It has ended, or is being stopped.
        """
        return await self._jobs.pause(name)

    async def resume_train_job(self, name: str) -> Job:
        """Queue a paused job again; its next attempt goes on from its newest checkpoint.

        Raises:
            NotFound: There is none.
            Conflict: It has ended, or is being stopped.
        """
        return await self._jobs.resume(name)

    async def dump_train_job_stacks(self, name: str, task: str | None = None) -> JobStacks:
        """Have the tasks of a job that run write the stacks of their Python threads to their logs.

        They run on. The stacks are in the log a moment later.

        Args:
            name: The job.
            task: Such as ``worker-1``; otherwise all tasks.

        Returns:
            Which tasks were asked.

        Raises:
            NotFound: There is none, or it has no such task.
            Conflict: It does not run.
        """
        return await self._jobs.dump_stacks(name, task)

    async def restart_train_job(self, name: str, task: str | None = None) -> Job:
        """Have another attempt take the place of the one that runs. It goes on from the newest
        checkpoint, and costs no retry.

        Args:
            name: The job.
            task: Such as ``worker-1``: it alone ends within the grace time and starts again, while
                the others run on. That costs none of ``task_retries``.

        Raises:
            NotFound: There is no such job, or it has no such task.
            Conflict: It is saved or paused, has ended, or is being stopped; or the task does not
                run, or its recipe cannot go on after it.
        """
        return await self._jobs.restart(name, task)

    async def delete_train_job(self, name: str) -> Job:
        """Ask for a job's removal: it is stopped, its log is dropped, then its name is free.

        Raises:
            NotFound: There is none.
        """
        return await self._jobs.delete(name)

"""How the client submits train jobs. ``AsyncCloudMlClient`` has these methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloud_ml.errors import AlreadyExists

if TYPE_CHECKING:
    from cloud_ml.aio.jobs.calls import AsyncJobCalls
    from cloud_ml.aio.jobs.handles import AsyncJobHandle
    from cloud_ml.aio.storage.client import AsyncStorage
    from cloud_ml.aio.transport import AsyncTransport
    from cloud_ml.models.jobs.job import Job
    from cloud_ml.models.jobs.reproduction import Reproduction
    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.models.server import WhoAmI
    from cloud_ml.sdk.progress import Progress


class AsyncJobSubmission:
    """Submits, checks, clones and reproduces train jobs."""

    if TYPE_CHECKING:

        @cached_property
        def storage(self) -> AsyncStorage: ...
        @cached_property
        def _transport(self) -> AsyncTransport: ...
        async def whoami(self) -> WhoAmI: ...

    async def submit_train_job(
        self,
        train_job: TrainJob,
        *,
        progress: Progress | None = None,
        resubmit_of: str | None = None,
    ) -> AsyncJobHandle:
        """Submit a job. A ``trainer_uri`` that is a local file or folder is packed and uploaded
        first.

        A job of several workers that names neither framework nor recipe has the recipe of what such
        code imports: with PyTorch, ``worker_count=2`` makes two tasks, and no master. The recipe is
        in ``job.spec`` of what is returned.

        ``progress`` is told how far the upload is. ``resubmit_of`` is the name or uid of a job
        whose values the server uses where ``environment`` or ``job_args`` has a mask (``******``),
        as in the description of that job. When this returns, the server has the job on disk. The
        request is repeated safely if an answer is lost.

        Raises:
            InvalidRequest: A field is wrong, or the local code cannot be packed; names field and
                value.
            AlreadyExists: The name is taken; ``same_spec`` tells whether by an equal job.
            TooLarge: The local code is too big.
        """
        _validate(train_job)
        sent = await self._with_trainer_sent(train_job, progress, resubmit_of)
        return self._handle(await self._jobs.submit(sent, resubmit_of=resubmit_of))

    async def check_train_job(self, train_job: TrainJob, *, resubmit_of: str | None = None) -> None:
        """Refuse a job that ``submit_train_job`` would refuse, but for a name that is taken. Nothing
        is made, and no code is uploaded.

        Raises:
            InvalidRequest: A field is wrong, or the server cannot do what it asks for.
            QuotaExceeded: The quota would not have room for the job even if nothing else ran.
        """
        _validate(train_job)
        await self._check(await _with_recipe(train_job), resubmit_of)

    async def clone_train_job(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        job_name: str | None = None,
        environment: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> AsyncJobHandle:
        """Submit a copy of a job with the same code and some changes.

        Args:
            name: The job, by name or uid.
            arguments: Other values for flags of the trainer, such as ``{"lr": 0.1}``; ``None``
                removes a flag.
            job_name: The name of the copy; otherwise that of the job with a number.
            environment: Variables to set beside those of the job; ``None`` removes one.
            fields: Other fields of the job, such as ``memory_limit="2G"``.

        Raises:
            NotFound: There is no such job.
            InvalidRequest: A field is wrong; names field and value.
            AlreadyExists: The name is taken.
        """
        from cloud_ml.models.jobs.clone import JobClone
        from cloud_ml.sdk.jobs.copies import check_code_stays, free_names

        check_code_stays(fields)
        last: AlreadyExists | None = None
        for free in [job_name] if job_name else free_names((await self._jobs.get(name)).name):
            request = JobClone(
                job_name=free,
                arguments=arguments or {},
                environment=environment or {},
                fields=fields,
            )
            request.validate()
            try:
                return self._handle(await self._jobs.clone(name, request))
            except AlreadyExists as error:
                last = error
        assert last is not None
        raise last

    async def reproduce_train_job(
        self,
        name: str,
        *,
        tolerance: float = 1e-6,
        metrics: Sequence[str] = (),
        wait_s: float | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> Reproduction:
        """Run a job again from its record, and say whether it gave the same.

        It runs with the same code, arguments, packages and seed. If it differs without a known
        reason, it runs once more: that tells whether the code differs from itself.

        Args:
            name: The job, by name or uid. It has ended.
            tolerance: The largest difference of a metric that counts as none; relative for values
                beyond 1.
            metrics: Compare only these metrics.
            wait_s: Seconds to wait for each run; ``None`` waits for ever.
            tell: Told what is being done.

        Raises:
            NotFound: There is no such job.
            Conflict: It has not ended.
            WaitTimedOut: A run has not ended by then; it goes on.
        """
        first = await self._jobs.get(name)
        query: dict[str, Any] = {"tolerance": tolerance, "metric": list(metrics)}
        again = await self._run_again(first, wait_s, tell)
        found = await self._jobs.verdict(first.uid, again, query)
        if not found.ask_again:
            return found
        third = await self._run_again(first, wait_s, tell)
        return await self._jobs.verdict(first.uid, again, {**query, "once_more": third})

    async def _run_again(
        self, first: Job, wait_s: float | None, tell: Callable[[str], object] | None
    ) -> str:
        """Run a job again to its end; returns the uid of the one that did."""
        from cloud_ml.sdk.jobs.copies import free_names

        last: AlreadyExists | None = None
        for free in free_names(first.name, "again"):
            try:
                handle = self._handle(await self._jobs.reproduce(first.uid, free))
            except AlreadyExists as error:
                last = error
                continue
            if tell is not None:
                tell(f"Running {first.name} again as {handle.name}")
            return (await handle.wait(wait_s)).uid
        assert last is not None
        raise last

    @cached_property
    def _jobs(self) -> AsyncJobCalls:
        from cloud_ml.aio.jobs.calls import AsyncJobCalls

        return AsyncJobCalls(self._transport)

    def _handle(self, job: Job) -> AsyncJobHandle:
        from cloud_ml.aio.jobs.handles import AsyncJobHandle

        return AsyncJobHandle(self._jobs, job)

    async def _with_trainer_sent(
        self, job: TrainJob, progress: Progress | None, resubmit_of: str | None
    ) -> TrainJob:
        if "://" in job.trainer_uri:
            return dataclasses.replace(job, git=job.git or None)
        from cloud_ml.sdk.trainers.upload import wants_git

        with_git = wants_git(job)
        job = dataclasses.replace(await _with_recipe(job), git=None)
        caller = await self.whoami()
        await self._check(job, resubmit_of, caller)
        sent = await self.storage.send_code(
            job.trainer_uri,
            caller.default_bucket,
            git=with_git and caller.keeps_git,
            progress=progress,
        )
        return dataclasses.replace(job, trainer_uri=sent.uri, git=sent.git)

    async def _check(
        self, job: TrainJob, resubmit_of: str | None, caller: WhoAmI | None = None
    ) -> None:
        """Ask whether the job would be refused."""
        if "://" not in job.trainer_uri:
            bucket = (caller or await self.whoami()).default_bucket
            if not bucket:  # the upload says why there is none
                return
            job = dataclasses.replace(job, trainer_uri=f"fds://{bucket}/.trainers/new")
        await self._jobs.check(job, resubmit_of=resubmit_of)


async def _with_recipe(job: TrainJob) -> TrainJob:
    """The job with the recipe that its local code tells; see ``recipe_of_code``."""
    if not (job.worker_count or job.worker_spec or job.elastic):
        return job
    from cloud_ml.aio.clock import in_thread
    from cloud_ml.sdk.trainers.code_recipe import with_recipe_of_code

    return await in_thread(lambda: with_recipe_of_code(job))


def _validate(train_job: TrainJob) -> None:
    from cloud_ml.models.fields import check_type
    from cloud_ml.models.jobs.train_job import TrainJob

    check_type(train_job, TrainJob)
    train_job.validate()

"""The Python SDK.

::

    from cloud_ml.aio import AsyncCloudMlClient
    from cloud_ml.models.train_job import TrainJob

    async with AsyncCloudMlClient() as client:
        job = await client.submit_train_job(TrainJob("linear", "trainer.task", "./linear"))
        async for chunk in job.logs(follow=True):
            sys.stdout.buffer.write(chunk)
        if not (await job.wait()).succeeded:
            print(job.job.message)

Importing this module is cheap: what talks to the network is imported where it is first used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cloud_ml.aio.models.deploying import AsyncModelServices
from cloud_ml.errors import AlreadyExists
from cloud_ml.models.fields import check_type
from cloud_ml.models.job_clone import JobClone
from cloud_ml.models.train_job import TrainJob

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cloud_ml.aio.admin.access_tokens import AsyncAccessTokens
    from cloud_ml.aio.admin.calls import AsyncAdmin
    from cloud_ml.aio.admin.quota import AsyncQuota
    from cloud_ml.aio.jobs.calls import AsyncJobCalls
    from cloud_ml.aio.jobs.handles import AsyncJobHandle
    from cloud_ml.aio.model_registry import AsyncModelRegistry
    from cloud_ml.aio.resources import AsyncResources
    from cloud_ml.aio.runs import AsyncRuns
    from cloud_ml.aio.runtimes import AsyncRuntimeCalls
    from cloud_ml.aio.secrets import AsyncSecrets
    from cloud_ml.aio.storage.client import AsyncStorage
    from cloud_ml.aio.studies import AsyncStudies
    from cloud_ml.aio.tensorboards import AsyncTensorBoards
    from cloud_ml.aio.transport import AsyncTransport
    from cloud_ml.models.checkpoints import JobCheckpoint
    from cloud_ml.models.framework import PreparationLine, Runtime
    from cloud_ml.models.job import Job, JobChange, JobEvent, JobStacks, JobSummary, JobTasks
    from cloud_ml.models.metrics import MetricSeries
    from cloud_ml.models.outputs import OutputFile
    from cloud_ml.models.reproduction import Reproduction
    from cloud_ml.models.resource import NewResource, ResourceType, ResourceView
    from cloud_ml.models.storage import ServerInfo, WhoAmI
    from cloud_ml.sdk.config import Connection
    from cloud_ml.sdk.progress import Progress

T = TypeVar("T")
NewT = TypeVar("NewT", bound="NewResource")
ViewT = TypeVar("ViewT", bound="ResourceView")


class AsyncCloudMlClient(AsyncModelServices):
    """Asks a Cloud ML server with an access key or an access token. Safe to use from several tasks.

    What is not given is taken from ``CLOUDML_ENDPOINT``, ``CLOUDML_ACCESS_KEY`` and
    ``CLOUDML_SECRET_KEY`` (or ``CLOUDML_TOKEN``), then from the user's settings
    (``~/.config/cloudml/config.json``).

    Args:
        access_key: Names the caller.
        secret_key: Signs for the caller; never leaves this machine.
        endpoint: Such as ``https://cloudml.example.com``.
        token: An access token in place of a key; see ``cloudml token create``. It is sent over TLS
            or loopback only.
        context: A context of the settings other than the current one.

    Every method that asks the server may raise, besides what it lists:

    - ``TransportError``: the server cannot be reached, or something else answers in its place;
    - ``Unauthenticated``, ``Forbidden``: the key is wrong, or may not do this;
    - ``Unavailable``, ``OutOfSpace``: asking again later may succeed; it was asked a few times
      already.

    Raises:
        InvalidRequest: There is no key and no token, half of a key, both, or the endpoint is
            malformed.
        NotFound: There is no such context.
    """

    def __init__(
        self,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
    ) -> None:
        from cloud_ml.sdk import config

        self._connection: Connection = config.resolve(
            endpoint=endpoint,
            access_key=access_key,
            secret_key=secret_key,
            token=token,
            context=context,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r}, {self._connection.credentials.shown})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that are kept open; the client stays usable."""
        await self._transport.aclose()

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return str(self._connection.endpoint)

    @cached_property
    def storage(self) -> AsyncStorage:
        """Buckets and objects."""
        from cloud_ml.aio.storage.client import AsyncStorage

        return AsyncStorage(self._transport)

    @cached_property
    def admin(self) -> AsyncAdmin:
        """Organisations, users, keys and the audit log, for those who manage them."""
        from cloud_ml.aio.admin.calls import AsyncAdmin

        return AsyncAdmin(self._transport)

    @cached_property
    def tokens(self) -> AsyncAccessTokens:
        """Access tokens, for programs that have no SDK."""
        from cloud_ml.aio.admin.access_tokens import AsyncAccessTokens

        return AsyncAccessTokens(self._transport)

    @cached_property
    def quota(self) -> AsyncQuota:
        """Limits of the organisation, what is used of them, and applications for more."""
        from cloud_ml.aio.admin.quota import AsyncQuota

        return AsyncQuota(self._transport)

    @cached_property
    def secrets(self) -> AsyncSecrets:
        """Values that jobs get and nobody is shown."""
        from cloud_ml.aio.secrets import AsyncSecrets

        return AsyncSecrets(self._transport)

    @cached_property
    def runs(self) -> AsyncRuns:
        """Jobs as runs, and runs without a job: found by metrics, parameters and tags."""
        from cloud_ml.aio.runs import AsyncRuns

        return AsyncRuns(self._transport)

    @cached_property
    def model_registry(self) -> AsyncModelRegistry:
        """Models that runs have logged, and registered models with their versions."""
        from cloud_ml.aio.model_registry import AsyncModelRegistry

        return AsyncModelRegistry(self._transport)

    @cached_property
    def studies(self) -> AsyncStudies:
        """Searches for the arguments with which a job does best."""
        from cloud_ml.aio.studies import AsyncStudies

        return AsyncStudies(self._transport, self._with_trainer_sent)

    @cached_property
    def tensorboards(self) -> AsyncTensorBoards:
        """TensorBoards on folders, jobs and studies."""
        from cloud_ml.aio.tensorboards import AsyncTensorBoards

        return AsyncTensorBoards(self._transport)

    def resources(self, described: ResourceType[NewT, ViewT]) -> AsyncResources[NewT, ViewT]:
        """The resources of a kind, by its description."""
        from cloud_ml.aio.resources import AsyncResources

        return AsyncResources(self._transport, described)

    # ── train jobs ────────────────────────────────────────────────────────────────────────────

    async def submit_train_job(
        self,
        train_job: TrainJob,
        *,
        progress: Progress | None = None,
        resubmit_of: str | None = None,
    ) -> AsyncJobHandle:
        """Submit a job. A ``trainer_uri`` that is a local file or folder is packed and uploaded
        first.

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
        check_type(train_job, TrainJob)
        train_job.validate()
        sent = await self._with_trainer_sent(train_job, progress, resubmit_of)
        return self._handle(await self._jobs.submit(sent, resubmit_of=resubmit_of))

    async def check_train_job(self, train_job: TrainJob, *, resubmit_of: str | None = None) -> None:
        """Refuse a job that ``submit_train_job`` would refuse, but for a name that is taken. Nothing
        is made, and no code is uploaded.

        Raises:
            InvalidRequest: A field is wrong, or the server cannot do what it asks for.
            QuotaExceeded: The quota would not have room for the job even if nothing else ran.
        """
        check_type(train_job, TrainJob)
        train_job.validate()
        await self._check(train_job, resubmit_of)

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
        from cloud_ml.sdk.jobs.copies import check_code_stays, free_names

        check_code_stays(fields)
        last: AlreadyExists | None = None
        for free in [job_name] if job_name else free_names((await self._jobs.get(name)).name):
            wish = JobClone(
                job_name=free,
                arguments=arguments or {},
                environment=environment or {},
                fields=fields,
            )
            wish.validate()
            try:
                return self._handle(await self._jobs.clone(name, wish))
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
        again = await self._again(first, wait_s, tell)
        found = await self._jobs.verdict(first.uid, again, query)
        if not found.ask_again:
            return found
        third = await self._again(first, wait_s, tell)
        return await self._jobs.verdict(first.uid, again, {**query, "once_more": third})

    async def _again(
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

    # ── the server ────────────────────────────────────────────────────────────────────────────

    async def whoami(self) -> WhoAmI:
        """Whom the server takes the caller for."""
        from cloud_ml.models.storage import WhoAmI

        return await self._get("whoami", WhoAmI)

    async def server_info(self) -> ServerInfo:
        """The server's version, and what its machine gives to jobs."""
        from cloud_ml.models.storage import ServerInfo

        return await self._get("server", ServerInfo)

    async def frameworks(self) -> dict[str, list[str]]:
        """The frameworks that jobs may ask for, each with its versions."""
        return {
            str(name): [str(one) for one in versions]
            for name, versions in (await self._read("frameworks")).items()
        }

    async def runtimes(self, framework: str | None = None) -> list[Runtime]:
        """Every version of every framework (or of one), and what of it is ready on the server.

        Raises:
            NotFound: There is no such framework.
        """
        return await self._runtimes.list(framework)

    def prepare_framework(
        self, framework: str, version: str | None = None
    ) -> AsyncGenerator[PreparationLine]:
        """Install a framework on the server before a job asks for it; what happens, as it happens.

        For administrators. The last line tells the runtime, or the error. It goes on when nobody
        listens.

        Raises:
            NotFound: There is no such framework.
            InvalidRequest: There is no such version.
            Forbidden: The caller does not run the platform.
        """
        return self._runtimes.prepare(framework, version)

    async def remove_framework(self, framework: str, version: str | None = None) -> None:
        """Remove what is installed of a framework; the next job that needs it installs it again.

        Raises:
            Conflict: A job that is not over uses it.
        """
        await self._runtimes.remove(framework, version)

    # ── within ────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _transport(self) -> AsyncTransport:
        from cloud_ml.aio.transport import AsyncTransport

        return AsyncTransport(self._connection.endpoint, self._connection.credentials)

    @cached_property
    def _jobs(self) -> AsyncJobCalls:
        from cloud_ml.aio.jobs.calls import AsyncJobCalls

        return AsyncJobCalls(self._transport)

    @cached_property
    def _runtimes(self) -> AsyncRuntimeCalls:
        from cloud_ml.aio.runtimes import AsyncRuntimeCalls

        return AsyncRuntimeCalls(self._transport)

    def _handle(self, job: Job) -> AsyncJobHandle:
        from cloud_ml.aio.jobs.handles import AsyncJobHandle

        return AsyncJobHandle(self._jobs, job)

    async def _with_trainer_sent(
        self, job: TrainJob, progress: Progress | None, resubmit_of: str | None
    ) -> TrainJob:
        if "://" in job.trainer_uri:
            return dataclasses.replace(job, git=job.git or None)
        from cloud_ml.sdk.trainers.upload import wants_git

        wanted = wants_git(job)
        job = dataclasses.replace(job, git=None)
        bucket = await self._check(job, resubmit_of)
        sent = await self.storage.send_code(job.trainer_uri, bucket, git=wanted, progress=progress)
        return dataclasses.replace(job, trainer_uri=sent.uri, git=sent.git)

    async def _check(self, job: TrainJob, resubmit_of: str | None) -> str:
        """Ask whether the job would be refused; returns the bucket that local code is sent to."""
        bucket = ""
        if "://" not in job.trainer_uri:
            bucket = (await self.whoami()).default_bucket
            if not bucket:  # the upload says why there is none
                return bucket
            job = dataclasses.replace(job, trainer_uri=f"fds://{bucket}/.trainers/new")
        await self._jobs.check(job, resubmit_of=resubmit_of)
        return bucket

    async def _get(self, path: str, kind: type[T]) -> T:
        from cloud_ml.models import codec

        return codec.decode(kind, await self._read(path), ignore_unknown=True)

    async def _read(self, path: str) -> Any:
        from cloud_ml.sdk.messages import Request

        return await self._transport.json(Request("GET", f"/api/v1/{path}"))

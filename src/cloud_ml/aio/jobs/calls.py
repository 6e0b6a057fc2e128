"""The calls about train jobs, one method for each route."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import (
    Job,
    JobChange,
    JobEvent,
    JobEvents,
    JobPage,
    JobStacks,
    JobSummary,
    JobTasks,
)
from cloud_ml.models.jobs.outputs import OutputFile, OutputPage
from cloud_ml.models.tracking.metrics import (
    JobSeries,
    MetricPoint,
    read_points,
    with_numbers,
)
from cloud_ml.sdk.failures import AlreadyCarriedOut, AlreadyDeleted
from cloud_ml.sdk.jobs.filters import JobFilters
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, json_request, segment, watching
from cloud_ml.sdk.timeouts import QUIET_LOG_S

if TYPE_CHECKING:
    from cloud_ml.models.jobs.checkpoints import JobCheckpoint
    from cloud_ml.models.jobs.clone import JobClone
    from cloud_ml.models.jobs.reproduction import Reproduction
    from cloud_ml.models.jobs.train_job import TrainJob

_PATH = "/api/v1/jobs"
_ALL = JobFilters()
_UNKNOWN_ROUTE = ("not_found", "method_not_allowed")


class AsyncJobCalls:
    """Speaks about jobs with the server. Every method raises ``CloudMlError`` as
    ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport

    async def submit(self, job: TrainJob, *, resubmit_of: str | None = None) -> Job:
        """Submit once, however often the request has to be sent. A server of an earlier version
        keeps no facts of git.
        """
        try:
            return await self._submit(job, resubmit_of)
        except InvalidRequest as error:
            if job.git is None or error.field != "git":
                raise
        return await self._submit(replace(job, git=None), resubmit_of)

    async def _submit(self, job: TrainJob, resubmit_of: str | None) -> Job:
        return await self._job(
            _submission(_PATH, job, resubmit_of, idempotency_key=os.urandom(16).hex())
        )

    async def check(self, job: TrainJob, *, resubmit_of: str | None = None) -> None:
        """Ask whether a submission would be refused. Older servers do not know the question:
        they refuse later.
        """
        try:
            request = replace(_submission(f"{_PATH}/check", job, resubmit_of), same_twice=True)
            async with await self.transport.send(request) as answer:
                await answer.read()
        except CloudMlError as error:
            if error.code not in _UNKNOWN_ROUTE:
                raise

    async def clone(self, name: str, clone: JobClone) -> Job:
        """Submit a changed copy once, however often the request has to be sent."""
        key = os.urandom(16).hex()
        path = f"{_job_path(name)}/clone"
        return await self._job(
            json_request("POST", path, codec.encode_given(clone), idempotency_key=key)
        )

    async def reproduce(self, name: str, job_name: str) -> Job:
        """Submit a job that does again what one did."""
        key = os.urandom(16).hex()
        path = f"{_job_path(name)}/reproduce"
        return await self._job(
            json_request("POST", path, {"job_name": job_name}, idempotency_key=key)
        )

    async def verdict(self, name: str, again: str, query: Mapping[str, Any]) -> Reproduction:
        """Whether a job gave the same when it ran again."""
        from cloud_ml.models.jobs import reproduction

        path = f"{_job_path(name)}/reproduce/{segment(again)}"
        document = await self.transport.json(Request("GET", path, query=query))
        found = codec.decode(reproduction.Reproduction, document, ignore_unknown=True)
        return reproduction.with_numbers(found)

    async def get(self, name: str, *, newer_than: int | None = None, wait_s: float = 0.0) -> Job:
        """The job as it stands; with ``newer_than`` as soon as its revision is higher or
        ``wait_s`` are over.
        """
        waiting = {} if newer_than is None else {"wait": f"{wait_s:g}", "revision": newer_than}
        return await self._job(
            Request("GET", _job_path(name), query=waiting, read_timeout_s=READ_TIMEOUT_S + wait_s)
        )

    async def pages(
        self, filters: JobFilters = _ALL, *, limit: int = 200
    ) -> AsyncGenerator[JobPage]:
        """The list of jobs, newest first, a page at a time."""
        after: int | None = None
        while True:
            request = Request(
                "GET", _PATH, query={"limit": limit, "after": after, **filters.query()}
            )
            page = codec.decode(JobPage, await self.transport.json(request), ignore_unknown=True)
            yield page
            if (after := page.next) is None:
                return

    async def all(
        self, filters: JobFilters = _ALL, *, limit: int | None = None
    ) -> AsyncGenerator[JobSummary]:
        """The list of jobs, newest first, at most ``limit`` of them."""
        left = sys.maxsize if limit is None else limit
        async with aclosing(self.pages(filters, limit=min(max(left, 1), 200))) as pages:
            while left > 0 and (page := await anext(pages, None)) is not None:
                for job in page.items[:left]:
                    yield job
                left -= len(page.items)

    async def events(self, name: str, *, after: int = 0) -> list[JobEvent]:
        """What happened to the job, in order, behind the event with the id ``after``."""
        document = await self.transport.json(
            Request("GET", f"{_job_path(name)}/events", query={"after": after or None})
        )
        return codec.decode(JobEvents, document, ignore_unknown=True).items

    async def tasks(self, name: str) -> JobTasks:
        """The tasks of the job's current attempt and what they use now."""
        document = await self.transport.json(Request("GET", f"{_job_path(name)}/tasks"))
        return codec.decode(JobTasks, document, ignore_unknown=True)

    async def checkpoints(self, name: str) -> list[JobCheckpoint]:
        """The checkpoints that the job has saved, the oldest first."""
        from cloud_ml.models.jobs.checkpoints import JobCheckpoints

        document = await self.transport.json(Request("GET", f"{_job_path(name)}/checkpoints"))
        return codec.decode(JobCheckpoints, document, ignore_unknown=True).items

    async def series(self, name: str) -> JobSeries:
        """The metrics that the job has reported, and the tags of its event files that are none."""
        document = await self.transport.json(Request("GET", f"{_job_path(name)}/series"))
        found = codec.decode(JobSeries, document, ignore_unknown=True)
        return replace(found, items=[with_numbers(one) for one in found.items])

    async def points(self, name: str, metric: str, query: Mapping[str, Any]) -> list[MetricPoint]:
        """Points of a metric."""
        path = f"{_job_path(name)}/series/{segment(metric)}"
        document = await self.transport.json(Request("GET", path, query=query))
        return read_points(document)

    async def outputs(self, name: str) -> AsyncGenerator[OutputFile]:
        """The files that the job left, in byte order of their paths."""
        after: str | None = None
        while True:
            request = Request("GET", f"{_job_path(name)}/outputs", query={"after": after})
            page = codec.decode(OutputPage, await self.transport.json(request), ignore_unknown=True)
            for file in page.items:
                yield file
            if (after := page.next) is None:
                return

    async def log(
        self,
        name: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        task: str | None = None,
        role: str | None = None,
        offset: int = 0,
        since: datetime | None = None,
        installation: bool = True,
        timestamps: bool = False,
    ) -> AsyncAnswer:
        """The output of a task as a stream of bytes, without the first ``offset``, or what is older
        than ``since``.

        With ``since``, the answer's header ``cloudml-log-offset`` says how many bytes were left
        out.

        See ``follow.follow_log`` for one that survives cuts.
        """
        request = Request(
            "GET",
            f"{_job_path(name)}/logs",
            query={
                "lines": lines,
                "follow": follow,
                "attempt": attempt,
                "task": task,
                "role": role,
                "offset": offset or None,
                "since": codec.format_time(since) if since else None,
                "installation": None if installation else "false",
                "timestamps": timestamps,
            },
            headers={"Accept": "text/plain, application/json"},
            read_timeout_s=QUIET_LOG_S if follow else READ_TIMEOUT_S,
        )
        return await self.transport.send(request)

    async def watch(self, name: str | None = None, *, after: int | None = None) -> AsyncAnswer:
        """Changes of one job, or of all, as server-sent events; see ``watching.follow_changes``."""
        path = f"{_PATH}/-/watch" if name is None else f"{_job_path(name)}/watch"
        return await self.transport.send(watching(path, after))

    async def relisted(self) -> AsyncGenerator[JobChange]:
        """Every job as it stands, for who watches all and has to start again; see
        ``watching.Relist``.
        """
        revision: int | None = None
        async with aclosing(self.pages()) as pages:
            async for page in pages:
                if revision is None:
                    # That of the first page: what changes while the others are read is told by the
                    # stream from there on.
                    revision = page.revision
                    yield JobChange(revision=revision, uid="", name="", org="", job=None)
                for line in page.items:
                    with suppress(
                        NotFound
                    ):  # gone since the list was made, of which the stream will tell
                        job = await self.get(line.uid)
                        yield JobChange(
                            revision=revision, uid=job.uid, name=job.name, org=job.org, job=job
                        )

    async def watch_events(self, name: str, *, after: int | None = None) -> AsyncAnswer:
        """What is said about a job, as server-sent events; see ``watching.follow_events``."""
        return await self.transport.send(watching(f"{_job_path(name)}/events/watch", after))

    async def dump_stacks(self, name: str, task: str | None = None) -> JobStacks:
        """Have tasks write the stacks of their threads to their logs."""
        request = Request(
            "POST", f"{_job_path(name)}/stacks", query={"task": task}, same_twice=True
        )
        document = await self.transport.json(request)
        return codec.decode(JobStacks, document, ignore_unknown=True)

    async def cancel(self, name: str, *, grace: str | None = None) -> Job:
        """End the job wherever it stands; ``grace`` is the time between SIGTERM and SIGKILL."""
        request = Request("POST", f"{_job_path(name)}/cancel", query={"grace": grace}, once=True)
        return await self._send_change(name, request)

    async def start(self, name: str) -> Job:
        """Queue a saved job."""
        return await self._send_change(name, Request("POST", f"{_job_path(name)}/start", once=True))

    async def pause(self, name: str) -> Job:
        """Have a job give up its place."""
        return await self._send_change(name, Request("POST", f"{_job_path(name)}/pause", once=True))

    async def resume(self, name: str) -> Job:
        """Queue a paused job again."""
        return await self._send_change(
            name, Request("POST", f"{_job_path(name)}/resume", once=True)
        )

    async def restart(self, name: str, task: str | None = None) -> Job:
        """Have another attempt take the place of the one that runs, or a task start again."""
        request = Request("POST", f"{_job_path(name)}/restart", query={"task": task}, once=True)
        return await self._send_change(name, request)

    async def delete(self, name: str, known: Job | None = None) -> Job:
        """Ask for the job's removal.

        Where the first answer was lost and the job is gone by the second, ``known`` is returned, as
        being deleted.
        """
        try:
            return await self._job(Request("DELETE", _job_path(name)))
        except AlreadyDeleted:
            return replace(known or _nothing_known(name), deleting=True)

    async def _send_change(self, name: str, request: Request) -> Job:
        """The job after a change, as it stands now where the answer was lost."""
        try:
            return await self._job(request)
        except AlreadyCarriedOut:
            return await self.get(name)

    async def _job(self, request: Request) -> Job:
        document: Any = await self.transport.json(request)
        return codec.decode(Job, document, ignore_unknown=True)


def _job_path(name: str) -> str:
    return f"{_PATH}/{segment(name)}"


def _nothing_known(name: str) -> Job:
    """A job of which the last answer was lost, and that is gone."""
    now = datetime.now(UTC)
    return Job(
        uid="",
        name=name,
        org="",
        owner="",
        revision=0,
        phase="Stopped",
        state="deleting",
        attempt=0,
        created_at=now,
        updated_at=now,
    )


def _submission(
    path: str, job: TrainJob, resubmit_of: str | None, idempotency_key: str | None = None
) -> Request:
    body = json.dumps(codec.encode_given(job), ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json"}
    query = {"resubmit_of": resubmit_of}
    return Request(
        "POST", path, query=query, body=body, headers=headers, idempotency_key=idempotency_key
    )

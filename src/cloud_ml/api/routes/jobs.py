"""``/api/v1/jobs``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import conditional, documents, long_polls, streams
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.conditional import IfNoneMatch
from cloud_ml.api.long_polls import Wait, check_wait
from cloud_ml.api.openapi import JOB_BODY, answers, body_of, bytes_of, not_modified_responses
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.tenancy import Operation
from cloud_ml.engines.abilities import LogView
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.checkpoints import JobCheckpoints, NewestCheckpoint
from cloud_ml.models.jobs.clone import JobClone
from cloud_ml.models.jobs.job import Job, JobEvents, JobPage, JobStacks, JobTask, JobTasks
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.matching import EVERYTHING
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.finding import Filters, read_time
from cloud_ml.usecases.jobs.logs import Selection
from cloud_ml.usecases.jobs.task_restarts import requested_restart
from cloud_ml.usecases.jobs.tasks import check_task, dump_stacks, task_of, tasks_of

router = APIRouter(
    prefix="/api/v1/jobs", tags=["jobs"], default_response_class=Response, dependencies=CHECKED
)

_SHORT = 100
"""A page of so many lines is read, and written, in the event loop; longer ones, and those that
are searched for, on a thread.
"""

_LOOK_S = 1.0
"""So long the description of a job waits for its newest checkpoint."""


@router.post("", status_code=201, responses=answers(Job, 201), openapi_extra=JOB_BODY)
async def submit(
    here: Here,
    call: Signed,
    *,
    resubmit_of: Annotated[str | None, Query(max_length=64)] = None,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Take a job. The same ``Idempotency-Key`` makes one job and always answers with it.

    ``resubmit_of`` names a job whose values are used where ``environment`` or ``job_args`` has a
    mask (``******``).
    """
    common.check_idempotency_key(idempotency_key)
    job = codec.decode(TrainJob, documents.read_object(call.body))
    record = await here.offload(
        here.jobs.submit,
        call.caller,
        job,
        await here.engine.capacity(),
        resubmit_of=resubmit_of,
        idempotency_key=idempotency_key,
        once=call.once,
    )
    return documents.answer(views.job(record), 201)


@router.post("/check", status_code=204, responses=answers(None, 204), openapi_extra=JOB_BODY)
async def check(
    here: Here, call: Signed, resubmit_of: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """Refuse what a submission of this job would refuse, but for a name that is taken. Nothing is
    made.

    Clients ask before they upload the code; `trainer_uri` names the bucket that it will be in.
    """
    job = codec.decode(TrainJob, documents.read_object(call.body))
    await here.offload(
        here.jobs.check, call.caller, job, await here.engine.capacity(), resubmit_of=resubmit_of
    )
    return Response(status_code=204)


@router.get("", responses=not_modified_responses(JobPage))
async def list_jobs(
    here: Here,
    call: Signed,
    *,
    limit: Annotated[int, Query(ge=1)] = 50,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    state: str | None = None,
    name: Annotated[str | None, Query(max_length=64)] = None,
    framework: Annotated[str | None, Query(max_length=128)] = None,
    user: Annotated[str | None, Query(max_length=128)] = None,
    label: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI's way
    created_after: str | None = None,
    created_before: str | None = None,
    details: bool = False,
    metrics: Annotated[str | None, Query(max_length=4096)] = None,
    org_id: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Newest first, and only those that fit every condition that is given.

    ``state`` names phases or states, separated by commas; ``name`` is exact, or ends in ``*``;
    ``framework`` is what a job asked for or ran with; ``label`` is ``key=value`` and may be
    repeated. A page may be short, or empty, and have a ``next`` one: the search for what is rare
    among very many jobs goes on there. With ``details`` each line says why the job is where it is,
    how long it ran, its exit code and its arguments. With ``metrics``, names separated by commas,
    each line has the last values of these.
    """
    most = here.settings.list_page_limit
    if details:
        most = min(most, here.settings.list_details_limit)
    check_limit(limit, most)

    filters = Filters(
        state=state,
        name=name,
        framework=framework,
        user=user,
        labels=label,
        created_after=created_after,
        created_before=created_before,
    )

    def page() -> Response:
        revision = (
            here.store.revision()
        )  # before the list: whoever watches from here on misses nothing
        found = here.jobs.list(
            here.identities.scope(call.caller, org_id), filters, after=after, limit=limit
        )
        details_by_uid = here.jobs.details(found.items) if details else {}
        values = here.job_metrics.columns([line.key.uid for line in found.items], metrics)
        lines = [
            views.summary(
                line,
                details_by_uid.get(line.key.uid),
                values.get(line.key.uid, {}) if metrics else None,
            )
            for line in found.items
        ]
        shown = JobPage(items=lines, next=found.next, revision=revision)
        return conditional.answer_by_content(shown, if_none_match, revision=revision)

    short = limit <= _SHORT and not details and not metrics and filters.match() == EVERYTHING
    return await (here.read(page) if short else here.offload(page))


@router.get("/{name}", responses=not_modified_responses(Job))
async def describe(
    here: Here,
    call: Signed,
    name: str,
    *,
    wait: Wait = 0,
    revision: int | None = None,
    org_id: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A job by name or uid.

    With ``wait``, the answer comes as soon as the job's revision is another one than ``revision``
    (or than the present one), at the latest after so many seconds, as the job stands then. A new
    checkpoint alone ends no wait; its entity tag is another one.
    """
    check_wait(here, wait)
    record = await _find(here, call, name, org_id)
    if wait and revision in (None, record.revision):
        record = await here.hub.newer(
            record.key.uid,
            record.revision,
            lambda: here.jobs.get(record.key.uid),
            timeout_s=wait,
        )
    # Not part of the record, so that saving one commits nothing: the revision does not tell of it.
    newest = await _newest_checkpoint(here, record)
    tag = f"{record.revision}" + (f"-{_digest(newest)}" if newest is not None else "")
    return conditional.not_modified(if_none_match, tag) or conditional.answer(
        views.job(record, newest), None, tag=tag
    )


@router.post(
    "/{name}/clone", status_code=201, responses=answers(Job, 201), openapi_extra=body_of(JobClone)
)
async def clone(
    here: Here,
    call: Signed,
    name: str,
    *,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Submit a copy of a job with other arguments, variables or fields, and the same code.

    Values that are not shown are copied, too.
    """
    common.check_idempotency_key(idempotency_key)
    request = codec.decode(JobClone, documents.read_object(call.body))
    record = await here.offload(
        here.jobs.clone,
        call.caller,
        name,
        request,
        await here.engine.capacity(),
        idempotency_key=idempotency_key,
        once=call.once,
    )
    return documents.answer(views.job(record), 201)


@router.post("/{name}/cancel", responses=answers(Job))
async def cancel(
    here: Here,
    call: Signed,
    name: str,
    *,
    grace: Annotated[str | None, Query(max_length=32)] = None,
    org_id: str | None = None,
) -> Response:
    """End a job wherever it stands. Its record and its logs stay.

    ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``; left out, the job's
    own. A stop that goes on is shortened by a later one with less.

    An administrator names another organisation by its number, ``org_id``.
    """
    documents.check_no_fields(call.body, "?grace=30s")

    def cancel_job() -> TrainJobRecord:
        scope = here.identities.scope(call.caller, org_id)
        return here.jobs.cancel(scope, name, call.caller, grace=grace, once=call.once)

    return documents.answer(views.job(await here.offload(cancel_job)))


@router.post("/{name}/start", responses=answers(Job))
async def start(here: Here, call: Signed, name: str) -> Response:
    """Queue a job that was submitted with ``save_mode``."""
    documents.check_no_fields(call.body)
    return documents.answer(
        views.job(await here.offload(here.jobs.start, call.org, name, call.caller, once=call.once))
    )


@router.post("/{name}/pause", responses=answers(Job))
async def pause(here: Here, call: Signed, name: str) -> Response:
    """Have a job give up its place: its processes end within their grace time."""
    documents.check_no_fields(call.body)
    return documents.answer(
        views.job(await here.offload(here.jobs.pause, call.org, name, call.caller, once=call.once))
    )


@router.post("/{name}/resume", responses=answers(Job))
async def resume(here: Here, call: Signed, name: str) -> Response:
    """Queue a paused job again, as its next attempt."""
    documents.check_no_fields(call.body)
    return documents.answer(
        views.job(await here.offload(here.jobs.resume, call.org, name, call.caller, once=call.once))
    )


@router.post("/{name}/stacks", status_code=202, responses=answers(JobStacks, 202))
async def stacks(
    here: Here, call: Signed, name: str, task: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """Have all tasks that run, or one, write the stacks of their Python threads to their logs.

    They run on. The stacks are in the log a moment later.
    """
    documents.check_no_fields(call.body, "?task=worker-1")
    permit(call.caller, Operation.RUN_JOBS)
    record = await here.read(lambda: here.jobs.find(call.org, name))
    if task is not None:
        check_task(record, task)
    record = await long_polls.wait_for_start(here, record)

    async def use_up() -> None:
        if call.once is not None:
            await here.offload(here.store.remember, call.once)

    return documents.answer(await dump_stacks(record, here.engine, task, use_up), 202)


@router.post("/{name}/restart", responses=answers(Job))
async def restart(
    here: Here, call: Signed, name: str, task: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """Have another attempt take the place of the one that runs; it costs no retry.

    With a task, it alone ends and starts again, while the others run on. That needs a recipe that
    can go on. Where the job is *Starting*, the answer may take two seconds: a task that runs by
    then is restarted.
    """
    documents.check_no_fields(call.body, "?task=worker-1")
    if task is None:
        changed = await here.offload(here.jobs.restart, call.org, name, call.caller, once=call.once)
        return documents.answer(views.job(changed))
    permit(call.caller, Operation.RUN_JOBS)
    record = await here.read(lambda: here.jobs.find(call.org, name))
    check_task(record, task)
    record = await long_polls.wait_for_start(here, record)
    request = await requested_restart(record, here.engine, task)
    changed = await here.offload(
        here.jobs.restart_task, call.org, name, call.caller, request, once=call.once
    )
    return documents.answer(views.job(changed))


@router.delete("/{name}", status_code=202, responses=answers(Job, 202))
async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Ask for removal: the job is stopped, its logs go, and then its name is free.

    An administrator names another organisation by its number, ``org_id``.
    """

    def delete_job() -> TrainJobRecord:
        scope = here.identities.scope(call.caller, org_id)
        return here.jobs.delete(scope, name, call.caller, once=call.once)

    return documents.answer(views.job(await here.offload(delete_job)), 202)


@router.get("/{name}/events", responses=answers(JobEvents))
async def events(
    here: Here,
    call: Signed,
    name: str,
    *,
    after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    wait: Wait = 0,
    org_id: str | None = None,
) -> Response:
    """What was said about a job, oldest first, those with ``id > after``.

    With ``wait``, the answer comes as soon as there is one, at the latest after so many seconds.
    """
    check_wait(here, wait)
    record = await _find(here, call, name, org_id)

    found = await long_polls.events(
        here, record.key.uid, lambda: here.jobs.events(record, after=after), wait
    )
    return documents.answer(found)


@router.get("/{name}/checkpoints", responses=answers(JobCheckpoints))
async def checkpoints(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """The last hundred checkpoints that a job has saved and that are still there, the oldest
    first.
    """
    record = await _find(here, call, name, org_id)
    return documents.answer(await here.offload.long(record.key.org, here.checkpoints.of, record))


@router.get("/{name}/tasks", responses=answers(JobTasks))
async def tasks(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """The tasks of the current attempt and what they use now."""
    record = await _find(here, call, name, org_id)
    return documents.answer(await tasks_of(record, here.engine))


@router.get("/{name}/tasks/{task}", responses=answers(JobTask))
async def task(
    here: Here, call: Signed, name: str, task: str, org_id: str | None = None
) -> Response:
    """One task of the current attempt and what it uses now."""
    record = await _find(here, call, name, org_id)
    return documents.answer(await task_of(record, here.engine, task))


@router.get("/{name}/logs", responses=bytes_of("text/plain"))
async def logs(
    here: Here,
    call: Signed,
    name: str,
    *,
    lines: int | None = None,
    follow: bool = False,
    attempt: int | None = None,
    task: str | None = None,
    role: str | None = None,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    since: str | None = None,
    installation: bool = True,
    timestamps: bool = False,
    org_id: str | None = None,
) -> Response:
    """A task's output as it was written; with ``follow``, as it comes, until the job has ended.

    Without ``task``, a job of several tasks gives the lines of all, each behind the name of its
    task; ``role`` leaves those of one role.

    ``installation=false`` leaves out what was written before and after the user's code: its output
    comes byte for byte. ``timestamps`` puts a time in UTC before each line, to the second or a
    little more.

    ``offset`` leaves out so many bytes: a follower whose connection was cut goes on where it was.
    ``since`` (RFC 3339) leaves out what was written before, to the second or a little more; the
    header ``Cloudml-Log-Offset`` then says how many bytes that is.

    A followed stream that ends before its job has means that the server is going down: ask again.
    """
    record = await _find(here, call, name, org_id)
    view = LogView(installation, timestamps)
    selection = Selection(task, attempt, lines, follow, offset, view, role)
    headers: dict[str, str] = {}
    if (moment := read_time("since", since)) is not None:
        if lines is not None or offset:
            raise common.refuse("since", since, "nothing together with lines or offset")
        selection = replace(
            selection, offset=await here.logs.written_before(record, selection, moment)
        )
        headers["cloudml-log-offset"] = str(selection.offset)
    chunks = here.logs.read(record, selection)
    return streams.text(chunks, headers) if follow else await streams.whole_text(chunks, headers)


async def _newest_checkpoint(here: Here, record: TrainJobRecord) -> NewestCheckpoint | None:
    """The newest complete one, unless that takes long: a job may fill its folder, and other calls
    of its organisation may have all its threads.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_S):
            return await here.offload.long(record.key.org, here.checkpoints.describe_newest, record)
    return None


def _digest(checkpoint: NewestCheckpoint) -> str:
    return hashlib.sha256(repr(checkpoint).encode()).hexdigest()[:16]


async def _find(here: Here, call: Call, name: str, org_id: str | None) -> TrainJobRecord:
    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await here.read(find)

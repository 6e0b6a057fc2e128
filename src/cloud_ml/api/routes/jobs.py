"""``/api/v1/jobs``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import conditional, documents, long_polls, streams
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.conditional import IfNoneMatch
from cloud_ml.api.long_polls import Wait, check_wait
from cloud_ml.api.openapi import JOB_BODY, answers, bytes_of, known
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.engines.base import LogView
from cloud_ml.models import codec, common
from cloud_ml.models.job import Job, JobEvents, JobPage, JobTasks
from cloud_ml.models.train_job import TrainJob
from cloud_ml.state.matching import EVERYTHING
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.finding import Filters, read_time
from cloud_ml.usecases.jobs.logs import Selection
from cloud_ml.usecases.jobs.tasks import tasks_of

router = APIRouter(
    prefix="/api/v1/jobs", tags=["jobs"], default_response_class=Response, dependencies=CHECKED
)

_SHORT = 100
"""A page of so many lines is read, and written, in the event loop; longer ones, and those that
are searched for, on a thread.
"""


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


@router.get("", responses=known(JobPage))
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
    org_id: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Newest first, and only those that fit every condition that is given.

    ``state`` names phases or states, separated by commas; ``name`` is exact, or ends in ``*``;
    ``framework`` is what a job asked for or ran with; ``label`` is ``key=value`` and may be
    repeated. A page may be short, or empty, and have a ``next`` one: the search for what is rare
    among very many jobs goes on there. With ``details`` each line says why the job is where it is,
    how long it ran, its exit code and its arguments.
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
        told = here.jobs.details(found.items) if details else {}
        lines = [views.summary(line, told.get(line.key.uid)) for line in found.items]
        shown = JobPage(items=lines, next=found.next, revision=revision)
        return conditional.answer_by_content(shown, if_none_match, revision=revision)

    short = limit <= _SHORT and not details and filters.match() == EVERYTHING
    return await (here.read(page) if short else here.offload(page))


@router.get("/{name}", responses=known(Job))
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
    (or than the present one), at the latest after so many seconds, as the job stands then.
    """
    check_wait(here, wait)
    record = await _find(here, call, name, org_id)
    if wait:
        record = await here.hub.newer(
            record.key.uid,
            record.revision if revision is None else revision,
            lambda: here.jobs.get(record.key.uid),
            timeout_s=wait,
        )
    tag = f"{record.revision}"
    return conditional.unchanged(if_none_match, tag) or conditional.answer(
        views.job(record), None, tag=tag
    )


@router.post("/{name}/cancel", responses=answers(Job))
async def cancel(
    here: Here, call: Signed, name: str, grace: Annotated[str | None, Query(max_length=32)] = None
) -> Response:
    """End a job wherever it stands. Its record and its logs stay.

    ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``; left out, the job's
    own. A stop that goes on is shortened by a later one with less.
    """
    record = await here.offload(
        here.jobs.cancel, call.org, name, call.caller, grace=grace, once=call.once
    )
    return documents.answer(views.job(record))


@router.post("/{name}/start", responses=answers(Job))
async def start(here: Here, call: Signed, name: str) -> Response:
    """Queue a job that was submitted with ``save_mode``."""
    return documents.answer(
        views.job(await here.offload(here.jobs.start, call.org, name, call.caller, once=call.once))
    )


@router.delete("/{name}", status_code=202, responses=answers(Job, 202))
async def delete(here: Here, call: Signed, name: str) -> Response:
    """Ask for removal: the job is stopped, its logs go, and then its name is free."""
    return documents.answer(
        views.job(
            await here.offload(here.jobs.delete, call.org, name, call.caller, once=call.once)
        ),
        202,
    )


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


@router.get("/{name}/tasks", responses=answers(JobTasks))
async def tasks(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """The tasks of the current attempt and what they use now."""
    record = await _find(here, call, name, org_id)
    return documents.answer(await tasks_of(record, here.engine))


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
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    since: str | None = None,
    installation: bool = True,
    timestamps: bool = False,
    org_id: str | None = None,
) -> Response:
    """A task's output as it was written; with ``follow``, as it comes, until the job has ended.

    ``installation=false`` leaves out what was written before and after the user's code: its output
    comes byte for byte. ``timestamps`` puts a time in UTC before each line, to the second or a
    little more.

    ``offset`` leaves out so many bytes: a follower whose connection was cut goes on where it was.
    ``since`` (RFC 3339) leaves out what was written before, to the second or a little more; the
    header ``Cloudml-Log-Offset`` then says how many bytes that is.

    A followed stream that ends before its job has means that the server is going down: ask again.
    """
    record = await _find(here, call, name, org_id)
    selection = Selection(task, attempt, lines, follow, offset, LogView(installation, timestamps))
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


async def _find(here: Here, call: Call, name: str, org_id: str | None) -> TrainJobRecord:
    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await here.read(find)

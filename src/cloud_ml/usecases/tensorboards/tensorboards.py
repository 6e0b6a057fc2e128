"""TensorBoards: what is asked for is checked, and browsers get their way in."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cloud_ml.auth.application_tickets import make_ticket
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import resources_of
from cloud_ml.domain.records import Event
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, trial_name
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tensorboards.spec import (
    TENSORBOARD,
    RunSource,
    TensorBoardRecord,
    TensorBoardSpec,
    workload_of,
)
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from cloud_ml.models import common
from cloud_ml.models.common import format_memory, parse_object_uri, refuse
from cloud_ml.models.tracking.tensorboard import (
    TENSORBOARDS,
    NewTensorBoard,
    OpenedTensorBoard,
    TensorBoard,
)
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs import admission
from cloud_ml.usecases.resources import Resource
from cloud_ml.usecases.storage.objects import Storage

TensorBoardResource = Resource[NewTensorBoard, TensorBoard, TensorBoardSpec, WorkloadStatus]
OPEN_PATH = "/-/cloudml/open"
"""See ``gateway.applications``."""
MOST_JOBS = 100
MOST_TRIALS = 1000
"""Of a study whose trials are shown by their outputs. Each is two arguments of the program."""


def label_of(uid: str) -> str:
    """The first label of the host name of a TensorBoard, which nobody can guess."""
    return f"tb-{uid}"


@dataclass(frozen=True)
class ApplicationAddresses:
    """Where browsers find applications; see ``settings.applications``.

    ``problem`` says why they cannot be reached now, empty if they can.
    """

    domain: str = "localhost"
    port: int = 8472
    secure: bool = False
    listens_at: int = 0
    ticket_s: float = 60.0
    session_s: float = 43_200.0
    problem: Callable[[], str] = str

    def origin(self, uid: str) -> str:
        """The origin of an application."""
        usual = 443 if self.secure else 80
        port = "" if self.port == usual else f":{self.port}"
        return f"http{'s' if self.secure else ''}://{label_of(uid)}.{self.domain}{port}"


def tensorboard_resource(
    store: StateStore, storage: Storage, clock: Clock, addresses: ApplicationAddresses
) -> TensorBoardResource:
    """The description of TensorBoards.

    Args:
        store: Has the jobs and studies that they show.
        storage: Knows whose buckets are.
        clock: The time.
        addresses: Where browsers find them.
    """
    sources = _Sources(store, storage)
    return Resource(
        type=TENSORBOARDS,
        kind=TENSORBOARD,
        operation=Operation.RUN_JOBS,
        spec_of=_spec_of,
        first_status=lambda _: WorkloadStatus(queued_at=clock(), reason=Reason.SUBMITTED),
        complete=lambda caller, spec: spec.with_sources(sources.of(caller.org, spec)),
        admit=lambda _caller, spec, capacity: admission.check_room(spec.workload, capacity),
        fields=lambda record: _fields(record, addresses),
        phases=tuple(Phase),
        has_controller=True,
    )


def _spec_of(new: NewTensorBoard) -> TensorBoardSpec:
    shown = [name for name in ("logdir", "jobs", "study") if getattr(new, name)]
    if len(shown) != 1:
        given = f"{' and '.join(shown)} are given" if shown else "none of them is given"
        raise InvalidRequest(
            f"a TensorBoard shows one of logdir, jobs and study; {given}",
            field=shown[-1] if shown else "logdir",
            allowed="logdir fds://BUCKET/PATH, or jobs, or a study",
            hint="For a job: cloudml tensorboard create NAME --job JOB",
        )
    if len(new.jobs) > MOST_JOBS or len(set(new.jobs)) < len(new.jobs):
        raise refuse("jobs", f"{len(new.jobs)} names", f"at most {MOST_JOBS}, each once")
    for job in new.jobs:
        common.check_name("jobs", job)
    if new.study:
        common.check_name("study", new.study)
    if new.logdir:
        parse_object_uri("logdir", new.logdir)
    if new.cpu_limit is not None:
        common.check_cpu("cpu_limit", new.cpu_limit)
    if new.memory_limit is not None:
        common.check_memory("memory_limit", new.memory_limit)
    return TensorBoardSpec(
        logdir=new.logdir,
        jobs=tuple(new.jobs),
        study=new.study,
        workload=workload_of(resources_of(new.cpu_limit, new.memory_limit, None)),
        key=secrets.token_hex(32),
    )


class TensorBoardsOfJobs:
    """Makes the TensorBoard of a job that names a folder for one. Blocking."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, job: TrainJobRecord) -> None:
        """Make it, paused until somebody opens it. One of that name that there is stays as it is.

        It may be repeated: the same job makes one.
        """
        logdir, now = job.spec.submitted.tensorboard_logdir, self._clock()
        if not logdir or job.parent is not None:  # trials of a study would make one each
            return
        spec = _spec_of(NewTensorBoard(name=job.key.name, logdir=logdir))
        spec = spec.with_sources([RunSource(logdir)])
        event = Event(now, "Created", f"for the job {job.key.name}; the first request starts it")
        with contextlib.suppress(AlreadyExists):
            self._store.create(
                TENSORBOARD,
                org=job.key.org,
                name=job.key.name,
                owner=job.owner,
                spec=spec.with_workload(spec.workload.with_desired(Desired.PAUSED)),
                status=WorkloadStatus(phase=Phase.PAUSED, reason=Reason.PAUSED),
                now=now,
                events=[event],
                idempotency_key=f"tensorboard of {job.key.uid}",
            )


class _Sources:
    """Finds the folders that a TensorBoard shows. Blocking."""

    def __init__(self, store: StateStore, storage: Storage) -> None:
        self._store = store
        self._storage = storage

    def of(self, org: str, spec: TensorBoardSpec) -> list[RunSource]:
        """The folders, each in a bucket of the organisation.

        Raises:
            NotFound: There is no such job, study or bucket.
            InvalidRequest: The job or study has no folder.
        """
        if spec.study:
            found = self._of_study(org, spec.study)
        elif spec.jobs:
            found = [self._of_job(org, job) for job in spec.jobs]
        else:
            found = [RunSource(spec.logdir)]
        field = _field_of(spec)
        for source in found:
            bucket = parse_object_uri(field, source.uri).bucket
            if not self._storage.owns(org, bucket):
                raise NotFound(f"{field}: there is no bucket {bucket}", field=field, value=bucket)
        return found

    def _of_job(self, org: str, name: str) -> RunSource:
        record = self._store.find(TRAIN_JOB, org, name)
        if record is None:
            raise NotFound(f"there is no job {name}", field="jobs", value=name)
        job = record.spec.submitted
        uri = job.tensorboard_logdir or job.output_path
        if not uri and (stored := record.status.outputs) is not None:
            uri = stored.uri
        if not uri and not record.status.phase.terminal:
            raise _no_folder(
                "jobs",
                f"the job {name} writes to no folder of a bucket",
                "Its event files can be shown when it has ended. To see them while a job runs, set "
                "output_path when you submit it, and write them there.",
            )
        return RunSource(_check_uri("jobs", f"the job {name}", uri), name)

    def _of_study(self, org: str, name: str) -> list[RunSource]:
        record = self._store.find(STUDY, org, name)
        if record is None:
            raise NotFound(f"there is no study {name}", field="study", value=name)
        if uri := record.spec.job.output_path:
            _check_uri("study", f"the job of the study {name}", uri)
            return [RunSource(uri, trial_name(name, 0).removesuffix("0"), each_child=True)]
        return self._of_trials(org, record)

    def _of_trials(self, org: str, study: StudyRecord) -> list[RunSource]:
        """The stored outputs of the trials that have ended by now."""
        name = study.key.name
        if study.spec.local:
            raise _no_folder(
                "study",
                f"the trials of the study {name} are no jobs: a loop of your own runs them",
                "Name the folder that the loop writes to: "
                "cloudml tensorboard create NAME -l fds://BUCKET/PATH",
            )
        names = [trial_name(name, one.number) for one in study.status.trials if one.over]
        if len(names) > MOST_TRIALS:
            raise _no_folder(
                "study",
                f"{len(names)} trials of the study {name} have ended, and its job has no output_path",
                f"So many can be shown with an output_path of the job. Without one, name up to "
                f"{MOST_JOBS} jobs: cloudml tensorboard create NAME -j {names[0]} -j {names[1]}",
            )
        jobs = [self._store.find(TRAIN_JOB, org, each) for each in names]
        found = [
            RunSource(job.status.outputs.uri, job.key.name)
            for job in jobs
            if job is not None
            and job.parent is not None
            and job.parent.uid == study.key.uid  # another job may have had the name
            and job.status.outputs is not None
        ]
        if not found:
            raise _no_folder(
                "study",
                f"no trial of the study {name} has stored outputs, and its job has no output_path",
                "Event files in the working folder of a trial can be shown when it has ended. To "
                "see them while it runs, give the job of the study an output_path, and write them "
                "there: cloudml hp submit … --output-path fds://BUCKET/PATH",
            )
        return found


def _check_uri(field: str, who: str, uri: str | None) -> str:
    if not uri or not uri.startswith("fds://"):
        raise _no_folder(
            field,
            f"{who} writes to no folder of a bucket",
            "Set output_path when you submit the job; its event files belong there.",
        )
    parse_object_uri(field, uri)
    return uri


def _no_folder(field: str, message: str, hint: str) -> InvalidRequest:
    return InvalidRequest(
        message,
        field=field,
        allowed="jobs with output_path, tensorboard_logdir or outputs",
        hint=hint,
    )


def _field_of(spec: TensorBoardSpec) -> str:
    if spec.study:
        return "study"
    return "jobs" if spec.jobs else "logdir"


def _fields(record: TensorBoardRecord, addresses: ApplicationAddresses) -> Mapping[str, Any]:
    spec, status = record.spec, record.status
    resources = spec.workload.roles[0].resources
    memory = resources.memory_bytes
    return {
        "logdir": spec.logdir,
        "jobs": list(spec.jobs),
        "study": spec.study,
        "address": addresses.origin(record.key.uid),
        "reason": status.reason,
        "message": status.message,
        "cpu_limit": "" if resources.cpu_millis is None else f"{resources.cpu_millis / 1000:g}",
        "memory_limit": "" if memory is None else format_memory(memory),
    }


def open_tensorboard(
    record: TensorBoardRecord, caller: Identity, clock: Clock, addresses: ApplicationAddresses
) -> OpenedTensorBoard:
    """A way in for the browser of a user who may see the TensorBoard.

    Raises:
        NotFound: It is being deleted.
        Unavailable: Browsers cannot reach applications now.
    """
    if record.delete_requested_at is not None:
        raise NotFound(f"the TensorBoard {record.key.name} is being deleted", field="name")
    if problem := addresses.problem():
        raise Unavailable(problem)
    now = clock()
    expires = now + timedelta(seconds=addresses.ticket_s)
    until = now + timedelta(seconds=addresses.session_s)
    ends = [end for end in (caller.expires_at, caller.token_expires_at) if end is not None]
    until = min([until, *ends])
    ticket = make_ticket(
        bytes.fromhex(record.spec.key),
        caller.access_key,
        issued_ms=int(now.timestamp() * 1000),
        expires=int(expires.timestamp()),
        session_until=int(until.timestamp()),
    )
    return OpenedTensorBoard(
        url=f"{addresses.origin(record.key.uid)}{OPEN_PATH}?ticket={ticket}",
        expires_at=expires,
        session_until=until,
        local=addresses.domain == "localhost",
        port=addresses.listens_at or addresses.port,
    )

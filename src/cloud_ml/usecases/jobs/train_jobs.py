"""What a caller may ask of train jobs. Blocking; callers in an event loop use a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from cloud_ml.domain.jobs.clones import clone_job
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord, logdir_tag
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.quotas import QuotaOf, QuotaSpec
from cloud_ml.domain.records import Event, EventType, ParentRef, Summary
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired, RequestedRestart, WorkloadSpec, change_workload
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists, Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.job import JobDetails
from cloud_ml.models.job_clone import JobClone
from cloud_ml.models.train_job import TrainJob
from cloud_ml.settings import TrainerSettings
from cloud_ml.state.base import Once, Page, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs import admission, members, views
from cloud_ml.usecases.jobs.bucket_uris import find_bucket_uris
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.finding import Filters
from cloud_ml.usecases.jobs.grace import grace_seconds
from cloud_ml.usecases.jobs.submission_checks import SubmissionChecks, no_checkpoint
from cloud_ml.usecases.jobs.task_restarts import with_restart
from cloud_ml.usecases.masking import commands_of, masking_events
from cloud_ml.usecases.metrics.patterns import PatternCheck, SearchCheck, any_patterns, any_searches
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.repeated_requests import limit_of_new
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.tracking.job_runs import ExperimentOf, no_experiments, run_of_job

_ALL = Filters()
_READ_TOGETHER = 20


class Refer(Protocol):
    """Has checkpoints kept that are among some URIs of a new record, which is made for a parent.
    Returns one that is about to be removed, or nothing.
    """

    def __call__(
        self, org: str, uris: Sequence[str], parent: ParentRef | None = None, /
    ) -> str: ...


class TrainJobs:
    """Submit, look at, start, cancel and delete jobs.

    ``scope`` is the organisation a request is about, ``None`` for all of them (see
    ``Identities.scope``). A job of another organisation is as absent as one that never was.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        catalog: Catalog,
        clock: Clock,
        *,
        checkpoints: Checkpoints,
        refer: Refer = lambda _org, _uris, _parent=None: "",
        gpu_missing: str = "refuse",
        quota_of: QuotaOf = lambda _: QuotaSpec(),
        trainers: TrainerSettings | None = None,
        records: RecordLimits | None = None,
        grace_limit_s: float = 3600.0,
        task_limits: admission.TaskLimits = admission.TaskLimits(),  # noqa: B008 - frozen
        gang_refusal: Callable[[], str] = str,
        check_secrets: Callable[[str, Sequence[str] | None], None] = lambda _org, _secrets: None,
        experiment_of: ExperimentOf = no_experiments,
        check_metric_patterns: PatternCheck = any_patterns,
        check_log_patterns: SearchCheck = any_searches,
        make_tensorboard: Callable[[TrainJobRecord], None] = lambda _job: None,
    ) -> None:
        self._store = store
        self._experiment_of = experiment_of
        self._make_tensorboard = make_tensorboard
        self._records = records or RecordLimits(store, clock, 0)
        self._clock = clock
        self._refer = refer
        self._grace_limit_s = grace_limit_s
        self._checks = SubmissionChecks(
            storage,
            catalog,
            checkpoints,
            self.find,
            gpu_missing=gpu_missing,
            quota_of=quota_of,
            trainers=trainers,
            grace_limit_s=grace_limit_s,
            task_limits=task_limits,
            gang_refusal=gang_refusal,
            check_secrets=check_secrets,
            check_metric_patterns=check_metric_patterns,
            check_log_patterns=check_log_patterns,
        )

    def _shared_logdir(self, org: str, uri: str, now: datetime) -> list[Event]:
        """A warning if the event files of another job are in the folder, or come there."""
        match = Match(tags=(logdir_tag(uri),))
        found = self._store.list(TRAIN_JOB, org=org, match=match, limit=1).items
        if not found:
            return []
        sentence = (
            f"job {found[0].key.name} has the same tensorboard_logdir, {uri}: TensorBoard shows the "
            "event files of both jobs as one. Name a folder for each job."
        )
        return [Event(now, Reason.LOGDIR_SHARED, sentence, EventType.WARNING)]

    def submit(
        self,
        caller: Identity,
        job: TrainJob,
        capacity: Capacity,
        *,
        notes: Sequence[str] = (),
        add_arguments: bool = True,
        refuse_uris: bool = True,
        resubmit_of: str | None = None,
        idempotency_key: str | None = None,
        once: Once | None = None,
        parent: ParentRef | None = None,
    ) -> TrainJobRecord:
        """Take a job, or answer with the one that this idempotency key has made already.

        A trainer that is not in its bucket is not refused: the job fails with that reason when it
        starts.

        Args:
            caller: Who submits, and for which organisation.
            job: The validated wire form.
            capacity: What the engine has in all.
            notes: Sentences that the user should see as warnings on the job.
            add_arguments: Pass ``output_path`` also as an argument, to code that has a flag of that
                name.
            resubmit_of: A job of the organisation, whose values take the place of masks in
                variables and arguments.
            refuse_uris: Refuse a URI in a bucket that does not exist; otherwise the job gets an
                event about it.
            idempotency_key: Chosen by the client; the same one makes one job.
            once: The request's mark against replay.
            parent: What the job is made for, such as a study.

        Raises:
            Forbidden: The caller's role may not submit.
            InvalidRequest: The server cannot do what a field asks for.
            NotFound: There is no job ``resubmit_of``.
            QuotaExceeded: The quota would not have room for the job even if nothing else ran.
            AlreadyExists: The name is taken, or that of a member; ``same_spec`` tells whether by an
                equal job.
            Conflict: The idempotency key was used for another job, or for one that is gone.
        """
        job = self._checks.filled(caller, job, resubmit_of)
        add_arguments = add_arguments and not job.hyperparameters
        admitted, unknown = self._checks.admit(
            caller, job, capacity, refuse_uris=refuse_uris, add_arguments=add_arguments
        )
        if gone := self._refer(caller.org, _list_uris(admitted.spec), parent):
            # Meanwhile the other job has saved newer ones, and one of them will do as well.
            admitted, unknown = self._checks.admit(
                caller, job, capacity, refuse_uris=refuse_uris, add_arguments=add_arguments
            )
            if gone := self._refer(caller.org, _list_uris(admitted.spec), parent):
                raise no_checkpoint(gone, f"{gone[:300]} is being removed")
        with limit_of_new(self._store, TRAIN_JOB, caller.org, idempotency_key):
            self._records.check(TRAIN_JOB, caller.org, "jobs", admitted.spec)
        members.check_names(self._store, caller.org, admitted.spec)
        now = self._clock()
        saved = admitted.spec.workload.desired is Desired.SAVED
        reason = Reason.SAVED if saved else Reason.SUBMITTED
        first = Event(now, reason, f"{'saved' if saved else 'submitted'} by {caller.user}")
        warnings = [
            Event(now, Reason.FIELD_IGNORED, n, EventType.WARNING)
            for n in (*notes, *admitted.notes)
        ]
        warnings += masking_events(job.environment, now, job.job_args, commands_of(job))
        if unknown is not None:
            warnings.append(Event(now, Reason.UNKNOWN_BUCKET, unknown.message, EventType.WARNING))
        if job.tensorboard_logdir and parent is None:
            warnings += self._shared_logdir(caller.org, job.tensorboard_logdir, now)
        try:
            record = self._store.create(
                TRAIN_JOB,
                org=caller.org,
                name=job.job_name,
                owner=caller.user,
                spec=admitted.spec,
                status=WorkloadStatus(
                    phase=Phase.SAVED if saved else Phase.QUEUED,
                    reason=reason,
                    queued_at=None if saved else now,
                ),
                now=now,
                events=[first, *warnings],
                idempotency_key=idempotency_key,
                once=once,
                parent=parent,
                run=run_of_job(caller, admitted.spec, now, self._experiment_of),
            )
        except AlreadyExists as error:
            raise self._name_taken(caller.org, job) from error
        if record.spec.submitted != job:
            raise Conflict(
                f"the idempotency key has made another job, {record.key.name}",
                field="Idempotency-Key",
                allowed="a key for each job",
            )
        # Also do this for a retried request: the server may have crashed after creating the job.
        self._make_tensorboard(record)
        return record

    def clone(
        self,
        caller: Identity,
        name: str,
        clone: JobClone,
        capacity: Capacity,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> TrainJobRecord:
        """Submit a changed copy of a job of the caller's organisation, with the same code.

        Raises:
            NotFound: There is no such job.
            InvalidRequest, Forbidden, QuotaExceeded, AlreadyExists, Conflict: As for ``submit``.
        """
        permit(caller, Operation.RUN_JOBS)
        clone.validate()
        job = clone_job(self.find(caller.org, name).spec.submitted, clone)
        return self.submit(caller, job, capacity, idempotency_key=idempotency_key, once=once)

    def check(
        self,
        caller: Identity,
        job: TrainJob,
        capacity: Capacity,
        *,
        resubmit_of: str | None = None,
        refer: bool = False,
    ) -> None:
        """Refuse what ``submit`` would refuse, but for a name that is taken. Nothing is made. With
        ``refer``, such jobs come later: checkpoints that they name are kept from now on.

        Raises:
            Forbidden: The caller's role may not submit.
            InvalidRequest: The server cannot do what a field asks for.
            QuotaExceeded: The quota would not have room for the job even if nothing else ran.
        """
        filled = self._checks.filled(caller, job, resubmit_of)
        admitted, _ = self._checks.admit(caller, filled, capacity, refuse_uris=True)
        self._records.check(TRAIN_JOB, caller.org, "jobs")
        if refer and (gone := self._refer(caller.org, _list_uris(admitted.spec))):
            raise no_checkpoint(gone, f"{gone[:300]} is being removed")

    def list(
        self,
        scope: str | None,
        filters: Filters = _ALL,
        *,
        after: int | None = None,
        limit: int = 50,
    ) -> Page[Summary]:
        """A page of jobs, newest first. It may be short, or empty, and have a next one.

        Args:
            scope: Whose.
            filters: Which of them.
            after: The cursor of the page before.
            limit: At most this many.

        Raises:
            InvalidRequest: One of ``filters`` is malformed.
        """
        return self._store.list(
            TRAIN_JOB,
            org=scope,
            indexes=filters.phases(),
            match=filters.match(),
            after=after,
            limit=limit,
        )

    def details(self, lines: Sequence[Summary]) -> Mapping[str, JobDetails]:
        """The details of a page's lines by their uids; jobs that are gone by now are left out.

        A few are read at a time: the arguments of a job may be as large as a request.
        """
        found: dict[str, JobDetails] = {}
        for start in range(0, len(lines), _READ_TOGETHER):
            uids = [line.key.uid for line in lines[start : start + _READ_TOGETHER]]
            for uid, (spec, status) in self._store.documents(TRAIN_JOB, uids).items():
                found[uid] = views.details(spec, TRAIN_JOB.decode_status(status))
        return found

    def find(self, scope: str | None, name: str) -> TrainJobRecord:
        """The job of that name, else the one of that uid. Under ``None`` only uids are unique.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        if len(name) <= 63 and common.NAME.fullmatch(name):
            record = self._store.find(TRAIN_JOB, scope, name) if scope is not None else None
            record = record or self._store.get(TRAIN_JOB, name)
            if record is not None and scope in (None, record.key.org):
                return record
        raise _absent(name)

    def find_member(self, scope: str | None, name: str) -> tuple[TrainJobRecord, str | None]:
        """The job of that name, as ``find``; else the job of which it is a member, and the task.

        Raises:
            NotFound: There is neither.
        """
        try:
            return self.find(scope, name), None
        except NotFound:
            found = members.find(self._store, scope, name) if scope is not None else None
            if found is None:
                raise
            return found

    def get(self, uid: str) -> TrainJobRecord:
        """The job of that uid.

        Raises:
            NotFound: It is gone.
        """
        record = self._store.get(TRAIN_JOB, uid)
        if record is None:
            raise _absent(uid)
        return record

    def events(self, record: TrainJobRecord, *, after: int = 0) -> Sequence[Event]:
        """What was said about the job, those with ``id > after``."""
        return self._store.events(record.key.uid, after=after)

    def start(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> TrainJobRecord:
        """Queue a saved job; one that was started already is success while it is under way.

        Raises:
            NotFound: There is no such job.
            Conflict: It has ended or is being stopped.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        if _ends(record):
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a saved job can be started",
                field="phase",
            )
        if record.spec.workload.desired is Desired.RUN:
            return self._return_unchanged(record, once)
        return self._change(
            record,
            _start_workload,
            Reason.START_REQUESTED,
            f"start requested by {caller.user}",
            once,
        )

    def pause(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> TrainJobRecord:
        """Have a job give up its place until it is resumed; one that is paused is success.

        Raises:
            NotFound: There is no such job.
            Conflict: It is saved, has ended or is being stopped.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        desired = record.spec.workload.desired
        if _ends(record) or desired is Desired.SAVED:
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a job that waits or runs can be "
                "paused",
                field="phase",
            )
        if desired is Desired.PAUSED:
            return self._return_unchanged(record, once)
        return self._change(
            record, _to_be_paused, Reason.PAUSE_REQUESTED, f"pause requested by {caller.user}", once
        )

    def resume(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> TrainJobRecord:
        """Queue a paused job again; one that was resumed already is success while it is under way.

        Raises:
            NotFound: There is no such job.
            Conflict: It is saved, has ended or is being stopped.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        desired = record.spec.workload.desired
        if _ends(record) or desired is Desired.SAVED:
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a paused job can be resumed",
                field="phase",
            )
        if desired is Desired.RUN:
            return self._return_unchanged(record, once)
        return self._change(
            record,
            _start_workload,
            Reason.RESUME_REQUESTED,
            f"resume requested by {caller.user}",
            once,
        )

    def restart(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> TrainJobRecord:
        """Have another attempt take the place of the one that runs. A job that waits for its next
        attempt begins it at once. Neither costs a retry.

        Raises:
            NotFound: There is no such job.
            Conflict: It is saved or paused, has ended or is being stopped.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        if _ends(record) or record.spec.workload.desired is not Desired.RUN:
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a job that runs can be "
                "restarted",
                field="phase",
                hint=_instead_of_a_restart(record),
            )
        status = record.status
        waits = status.phase in (Phase.QUEUED, Phase.RESTARTING)
        after = status.attempt - 1 if waits else status.attempt
        return self._change(
            record,
            lambda workload: replace(workload, restart_after=after),
            Reason.RESTART_REQUESTED,
            f"restart requested by {caller.user}",
            once,
        )

    def restart_task(
        self,
        scope: str | None,
        name: str,
        caller: Identity,
        wish: RequestedRestart,
        *,
        once: Once | None = None,
    ) -> TrainJobRecord:
        """Have a task of the attempt that runs start again alone; one whose restart is under way is
        success. It costs nothing of ``task_retries``.

        Raises:
            NotFound: There is no such job.
            Conflict: Another attempt has begun, or it is being stopped.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        workload = record.spec.workload
        other = record.status.attempt != wish.attempt or workload.desired is not Desired.RUN
        if _ends(record) or other:
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a task that runs can be "
                "restarted",
                field="phase",
            )
        if wish in workload.requested_restarts:
            return self._return_unchanged(record, once)
        return self._change(
            record,
            lambda workload: with_restart(workload, wish),
            Reason.RESTART_REQUESTED,
            f"restart of {wish.task} requested by {caller.user}",
            once,
        )

    def cancel(
        self,
        scope: str | None,
        name: str,
        caller: Identity,
        *,
        grace: str | None = None,
        why: str = "",
        once: Once | None = None,
    ) -> TrainJobRecord:
        """End a job wherever it stands; one that is being stopped already is success.

        Args:
            scope: Whose jobs.
            name: Which one.
            caller: Who asks.
            grace: The time between SIGTERM and SIGKILL, such as ``30s`` or ``0``, instead of the
                job's own. A later, shorter one shortens a stop that goes on.
            why: A reason that its event says.
            once: The request's mark against replay.

        Raises:
            NotFound: There is no such job.
            Conflict: It has ended by itself.
            InvalidRequest: ``grace`` is no duration, or too long.
        """
        permit(caller, Operation.RUN_JOBS)
        grace_s = grace_seconds("grace", grace, self._grace_limit_s)
        record = self.find(scope, name)
        stopping = record.spec.workload.desired is Desired.STOPPED
        if stopping and (
            record.status.phase.terminal or not _is_shorter(grace_s, record.spec.workload.grace_s)
        ):
            return self._return_unchanged(record, once)
        if record.status.phase.terminal:
            raise Conflict(
                f"{record.key.name} has ended already: {record.status.phase}", field="phase"
            )
        said = f"cancel requested by {caller.user}"
        if grace_s is not None:
            said += f" with {grace_s:g} s of grace"
        if why:
            said += f": {why}"
        return self._change(
            record, lambda workload: workload.stopped(grace_s), Reason.CANCEL_REQUESTED, said, once
        )

    def delete(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> TrainJobRecord:
        """Ask for a job's removal: it is stopped, its logs are dropped, and then its name is free.

        Raises:
            NotFound: There is no such job.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, name)
        if record.delete_requested_at is not None:
            return self._return_unchanged(record, once)
        now = self._clock()
        event = Event(now, Reason.DELETE_REQUESTED, f"deletion requested by {caller.user}")
        return self._store.request_delete(
            TRAIN_JOB, record.key.uid, now=now, events=[event], once=once
        )

    def _change(
        self,
        record: TrainJobRecord,
        change: Callable[[WorkloadSpec], WorkloadSpec],
        reason: Reason,
        said: str,
        once: Once | None,
    ) -> TrainJobRecord:
        now = self._clock()
        return self._store.change_spec(
            TRAIN_JOB,
            record.key.uid,
            lambda spec: change_workload(spec, change),
            now=now,
            events=[Event(now, reason, said)],
            once=once,
        )

    def _return_unchanged(self, record: TrainJobRecord, once: Once | None) -> TrainJobRecord:
        if once is not None:
            self._store.remember(once)
        return record

    def _name_taken(self, org: str, job: TrainJob) -> AlreadyExists:
        standing = self._store.find(TRAIN_JOB, org, job.job_name)
        return AlreadyExists(
            f"a job named {job.job_name} exists already"
            + (f" ({standing.status.phase})" if standing else ""),
            same_spec=standing is not None and standing.spec.submitted == job,
            field="job_name",
            value=job.job_name,
            allowed="a name that is not in use; delete the other job to use it again",
        )


def _list_uris(spec: JobSpec) -> Sequence[str]:
    """The URIs in a job."""
    return [spec.workload.restore_from, *(one.uri for one in find_bucket_uris(spec.submitted))]


def _ends(record: TrainJobRecord) -> bool:
    """Whether it has ended, or is to."""
    return bool(
        record.delete_requested_at
        or record.status.phase.terminal
        or record.spec.workload.desired is Desired.STOPPED
    )


def _instead_of_a_restart(record: TrainJobRecord) -> str | None:
    if _ends(record):
        return f"submit it again: cloudml jobs rerun {record.key.name}"
    saved = record.spec.workload.desired is Desired.SAVED
    return f"use: cloudml jobs {'start' if saved else 'resume'} {record.key.name}"


def _to_be_paused(workload: WorkloadSpec) -> WorkloadSpec:
    return workload.with_desired(Desired.PAUSED)


def _start_workload(workload: WorkloadSpec) -> WorkloadSpec:
    return workload if workload.desired is Desired.STOPPED else workload.with_desired(Desired.RUN)


def _is_shorter(grace_s: float | None, now_s: float | None) -> bool:
    """Whether a stop that goes on is to be shortened."""
    return grace_s is not None and (now_s is None or grace_s < now_s)


def _absent(name: str) -> NotFound:
    return NotFound(f"there is no job {name[:63]}", field="job_name", value=name[:63])

"""What a caller may ask of train jobs. Blocking; callers in an event loop use a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Protocol

from cloud_ml.domain.jobs.clones import clone_job
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord, logdir_tag
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.quotas import QuotaOf, QuotaSpec
from cloud_ml.domain.records import Event, EventType, ParentRef
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest
from cloud_ml.models.jobs.clone import JobClone
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.settings import TrainerSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs import admission, members
from cloud_ml.usecases.jobs.bucket_uris import find_bucket_uris
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.copied_trials import without_label_of_study
from cloud_ml.usecases.jobs.lifecycle import JobLifecycle
from cloud_ml.usecases.jobs.submission_checks import SubmissionChecks, no_checkpoint
from cloud_ml.usecases.masking import commands_of, masking_events
from cloud_ml.usecases.metrics.patterns import PatternCheck, SearchCheck, any_patterns, any_searches
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.repeated_requests import limit_of_new
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.tracking.job_runs import ExperimentOf, no_experiments, run_of_job


class Refer(Protocol):
    """Has checkpoints kept that are among some URIs of a new record, which is made for a parent.
    Returns one that is about to be removed, or nothing.
    """

    def __call__(
        self, org: str, uris: Sequence[str], parent: ParentRef | None = None, /
    ) -> str: ...


class TrainJobs(JobLifecycle):
    """Submit jobs, and all that may be asked of them afterwards.

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
        super().__init__(store, clock, grace_limit_s=grace_limit_s)
        self._experiment_of = experiment_of
        self._make_tensorboard = make_tensorboard
        self._records = records or RecordLimits(store, clock, 0)
        self._refer = refer
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
        parameters: Collection[str] = (),
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
            parameters: Names of variables that are parameters of the run, beside the arguments.

        Raises:
            Forbidden: The caller's role may not submit.
            InvalidRequest: The server cannot do what a field asks for.
            NotFound: There is no job ``resubmit_of``.
            QuotaExceeded: The quota would not have room for the job even if nothing else ran.
            AlreadyExists: The name is taken, or that of a member; ``same_spec`` tells whether by an
                equal job.
            Conflict: The idempotency key was used for another job, or for one that is gone.
        """
        filled = self._checks.filled(caller, job, resubmit_of)
        job = without_label_of_study(self._store, caller.org, filled) if parent is None else filled
        admitted, unknown = self._admit(
            caller,
            job,
            capacity,
            parent,
            refuse_uris=refuse_uris,
            add_arguments=add_arguments and not job.hyperparameters,
        )
        with limit_of_new(self._store, TRAIN_JOB, caller.org, idempotency_key):
            self._records.check(TRAIN_JOB, caller.org, "jobs", admitted.spec)
        members.check_names(self._store, caller.org, admitted.spec)
        now = self._clock()
        events = self._first_events(caller, job, admitted, unknown=unknown, notes=notes, now=now)
        if job.tensorboard_logdir and parent is None:
            events += self._shared_logdir(caller.org, job.tensorboard_logdir, now)
        try:
            record = self._store.create(
                TRAIN_JOB,
                org=caller.org,
                name=job.job_name,
                owner=caller.user,
                spec=admitted.spec,
                status=_first_status(admitted.spec, now),
                now=now,
                events=events,
                idempotency_key=idempotency_key,
                once=once,
                parent=parent,
                run=run_of_job(caller, admitted.spec, now, self._experiment_of, parameters),
            )
        except AlreadyExists as error:
            raise self._name_taken(caller.org, filled) from error
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

    def _admit(
        self,
        caller: Identity,
        job: TrainJob,
        capacity: Capacity,
        parent: ParentRef | None,
        *,
        refuse_uris: bool,
        add_arguments: bool,
    ) -> tuple[admission.Admitted, InvalidRequest | None]:
        """As ``SubmissionChecks.admit``, and the checkpoints that the job names are kept."""
        gone = ""
        for _ in range(2):
            admitted, unknown = self._checks.admit(
                caller, job, capacity, refuse_uris=refuse_uris, add_arguments=add_arguments
            )
            gone = self._refer(caller.org, _list_uris(admitted.spec), parent)
            if not gone:
                return admitted, unknown
            # Meanwhile the other job has saved newer ones, and one of them will do as well.
        raise no_checkpoint(gone, f"{gone[:300]} is being removed")

    def _first_events(
        self,
        caller: Identity,
        job: TrainJob,
        admitted: admission.Admitted,
        *,
        unknown: InvalidRequest | None,
        notes: Sequence[str],
        now: datetime,
    ) -> list[Event]:
        """What there is to say of a new job; ``unknown`` is about a bucket that does not exist."""
        status = _first_status(admitted.spec, now)
        verb = "saved" if status.phase is Phase.SAVED else "submitted"
        events = [Event(now, status.reason, f"{verb} by {caller.user}")]
        if given := self._checks.checkpoint_given(caller.org, admitted.spec.workload):
            events.append(Event(now, Reason.RESTORE_FROM, given))
        events += [
            Event(now, Reason.FIELD_IGNORED, note, EventType.WARNING)
            for note in (*notes, *admitted.notes)
        ]
        events += masking_events(job.environment, now, job.job_args, commands_of(job))
        if unknown is not None:
            events.append(Event(now, Reason.UNKNOWN_BUCKET, unknown.message, EventType.WARNING))
        return events

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


def _first_status(spec: JobSpec, now: datetime) -> WorkloadStatus:
    if spec.workload.desired is Desired.SAVED:
        return WorkloadStatus(phase=Phase.SAVED, reason=Reason.SAVED, queued_at=None)
    return WorkloadStatus(phase=Phase.QUEUED, reason=Reason.SUBMITTED, queued_at=now)


def _list_uris(spec: JobSpec) -> Sequence[str]:
    """The URIs in a job."""
    return [spec.workload.restore_from, *(one.uri for one in find_bucket_uris(spec.submitted))]

"""What may be asked of a train job that exists: to start, to pause, to end. Each is idempotent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired, RequestedRestart, WorkloadSpec, change_workload
from cloud_ml.errors import Conflict
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.grace import grace_seconds
from cloud_ml.usecases.jobs.lookup import JobLookup
from cloud_ml.usecases.jobs.task_restarts import with_restart


class JobLifecycle(JobLookup):
    """Starts, pauses, resumes, restarts, cancels and deletes train jobs."""

    def __init__(self, store: StateStore, clock: Clock, *, grace_limit_s: float) -> None:
        super().__init__(store)
        self._clock = clock
        self._grace_limit_s = grace_limit_s

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
            record,
            _pause_workload,
            Reason.PAUSE_REQUESTED,
            f"pause requested by {caller.user}",
            once,
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
                hint=_advise_no_restart(record),
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
        request: RequestedRestart,
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
        other = record.status.attempt != request.attempt or workload.desired is not Desired.RUN
        if _ends(record) or other:
            raise Conflict(
                f"{record.key.name} is {record.status.phase}; only a task that runs can be "
                "restarted",
                field="phase",
            )
        if request in workload.requested_restarts:
            return self._return_unchanged(record, once)
        return self._change(
            record,
            lambda workload: with_restart(workload, request),
            Reason.RESTART_REQUESTED,
            f"restart of {request.task} requested by {caller.user}",
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
        message = f"cancel requested by {caller.user}"
        if grace_s is not None:
            message += f" with {grace_s:g} s of grace"
        if why:
            message += f": {why}"
        return self._change(
            record,
            lambda workload: workload.stopped(grace_s),
            Reason.CANCEL_REQUESTED,
            message,
            once,
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
        message: str,
        once: Once | None,
    ) -> TrainJobRecord:
        now = self._clock()
        return self._store.change_spec(
            TRAIN_JOB,
            record.key.uid,
            lambda spec: change_workload(spec, change),
            now=now,
            events=[Event(now, reason, message)],
            once=once,
        )

    def _return_unchanged(self, record: TrainJobRecord, once: Once | None) -> TrainJobRecord:
        if once is not None:
            self._store.remember(once)
        return record


def _ends(record: TrainJobRecord) -> bool:
    """Whether it has ended, or is to."""
    return bool(
        record.delete_requested_at
        or record.status.phase.terminal
        or record.spec.workload.desired is Desired.STOPPED
    )


def _advise_no_restart(record: TrainJobRecord) -> str | None:
    if _ends(record):
        return f"submit it again: cloudml jobs rerun {record.key.name}"
    saved = record.spec.workload.desired is Desired.SAVED
    return f"use: cloudml jobs {'start' if saved else 'resume'} {record.key.name}"


def _pause_workload(workload: WorkloadSpec) -> WorkloadSpec:
    return workload.with_desired(Desired.PAUSED)


def _start_workload(workload: WorkloadSpec) -> WorkloadSpec:
    return workload if workload.desired is Desired.STOPPED else workload.with_desired(Desired.RUN)


def _is_shorter(grace_s: float | None, now_s: float | None) -> bool:
    """Whether a stop that goes on is to be shortened."""
    return grace_s is not None and (now_s is None or grace_s < now_s)

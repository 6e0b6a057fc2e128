"""One look at a model service: read it and its replicas, decide, then commit *or* act."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from cloud_ml.controller.routing.readiness import ReadinessProber
from cloud_ml.controller.routing.route_publisher import RoutePublisher, release_of
from cloud_ml.controller.routing.scaling import Scaling
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.decide import (
    DropReplica,
    MakeReplica,
    ServiceAction,
    StopReplica,
    decide,
)
from cloud_ml.domain.services.kind import (
    MODEL_SERVICE,
    REPLICA,
    ReplicaRecord,
    ServiceRecord,
    parent_of_replicas,
)
from cloud_ml.domain.services.spec import (
    DEFAULT_LIMITS,
    DEFAULT_RETRIES,
    LoadRetries,
    ReplicaSpec,
    RequestLimits,
)
from cloud_ml.domain.services.status import DesiredReplica, SeenReplica, ServiceStatus
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits, Desired
from cloud_ml.errors import Conflict, StaleRevision
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload

_PAGE = 1000
_PORT_PERIOD = timedelta(seconds=15)


class ModelServiceReconciler:
    """Moves services one step at a time towards what is wanted; replicas are moved by a
    reconciler of their own.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        prober: ReadinessProber,
        publisher: RoutePublisher,
        scaling: Scaling,
        clock: Clock,
        offload: Offload,
        fence: Fence,
        keep_ended: int = 0,
        defaults: DefaultLimits = NO_DEFAULT_LIMITS,
        quota_wait_s: float = 0.0,
        loading: LoadRetries = DEFAULT_RETRIES,
        limits: RequestLimits = DEFAULT_LIMITS,
    ) -> None:
        self._loading = loading
        self._limits = limits
        self._quota_wait_s = quota_wait_s
        self._defaults = defaults
        self._store = store
        self._keep_ended = keep_ended
        self._prober = prober
        self._publisher = publisher
        self._scaling = scaling
        self._clock = clock
        self._offload = offload
        self._fence = fence
        self._without_port: set[str] = set()

    async def reconcile(self, uid: str) -> ReconcileResult:
        """See ``Reconciler``."""
        while True:
            begin_step("read the record")
            service = await self._offload(self._store.get, MODEL_SERVICE, uid)
            if service is None:
                self._prober.follow(uid, "", ())
                self._publisher.forget(uid)
                self._scaling.forget(uid)
                self._without_port.discard(uid)
                return ReconcileResult()
            begin_step("read its replicas")
            records = await self._offload(self._replicas, uid)
            running = [each.key.uid for each in records if each.status.phase is Phase.RUNNING]
            self._prober.follow(uid, service.spec.submitted.model_name, running)
            begin_step("ask its replicas")
            await self._prober.wait_for_first_answers(running)
            no_port = ""
            if not service.status.port and service.delete_requested_at is None:
                begin_step("choose a port")
                port = await self._publisher.choose(service)
                if port and await self._commit(service, replace(service.status, port=port), ()):
                    continue
                no_port = self._publisher.no_port(service.key.org)
                if not port and await self._tell_no_port(service, no_port):
                    continue
            if (scale := self._scaling.desired_scale(service)) != service.status.scale:
                event = Event(self._clock(), "Scaled", f"{scale} replicas for what is asked of it")
                await self._commit(service, replace(service.status, scale=scale), [event])
                continue
            decision = decide(
                service,
                [self._observe(each) for each in records],
                self._clock(),
                keep_ended=self._keep_ended,
                quota_wait_s=self._quota_wait_s,
                load_tries=self._loading.tries,
                no_port=no_port,
            )
            if decision.status is None:
                leaving = any(isinstance(action, StopReplica) for action in decision.actions)
                begin_step("tell the gateway")
                # Update the route before stopping replicas, so that no call reaches a stopped
                # one.
                await self._publisher.show(service, records, wait=leaving)
                for action in decision.actions:
                    begin_step("make and end replicas")
                    await self._offload(self._perform, service, action)
                return ReconcileResult(
                    service.revision, self._next_look(service, decision.requeue_at)
                )
            await self._commit(service, decision.status, decision.events)

    def step_aside(self, uid: str) -> None:
        """See ``Reconciler``: services wait in no line."""

    async def _tell_no_port(self, service: ServiceRecord, why: str) -> bool:
        """Say once that a service has no port; whether there was something to say."""
        if service.key.uid in self._without_port:
            return False
        self._without_port.add(service.key.uid)
        event = Event(self._clock(), Reason.NO_PORT, why, EventType.WARNING)
        return await self._commit(service, service.status, [event])

    def _next_look(self, service: ServiceRecord, requeue_at: datetime | None) -> datetime | None:
        """When to look again: a service without a port looks for one now and then."""
        if service.status.port:
            self._without_port.discard(service.key.uid)
            return requeue_at
        soon = self._clock() + _PORT_PERIOD
        return soon if requeue_at is None else min(soon, requeue_at)

    async def _commit(
        self, service: ServiceRecord, status: ServiceStatus, events: Sequence[Event]
    ) -> bool:
        """Write a status; false where somebody wrote in between: that is to be looked at first."""
        begin_step("commit the new state")
        try:
            await self._offload(
                self._store.commit_status,
                MODEL_SERVICE,
                service.key.uid,
                status,
                expected_revision=service.revision,
                fence=self._fence,
                now=self._clock(),
                events=events,
            )
        except StaleRevision:
            return False
        return True

    def _replicas(self, uid: str) -> list[ReplicaRecord]:
        match = Match(parent=uid)
        found: list[ReplicaRecord] = []
        after: int | None = None
        while True:
            page = self._store.list(REPLICA, match=match, after=after, limit=_PAGE)
            records = (self._store.get(REPLICA, line.key.uid) for line in page.items)
            found += [record for record in records if record is not None]
            if (after := page.next) is None:
                return found

    def _observe(self, record: ReplicaRecord) -> SeenReplica:
        status = record.status
        return SeenReplica(
            uid=record.key.uid,
            number=number_of(record.key.name),
            template=release_of(record),
            phase=status.phase,
            reason=status.reason,
            message=status.message or self._prober.why_not(record.key.uid),
            ready=status.phase is Phase.RUNNING and self._prober.ready(record.key.uid),
            attempt=status.attempt,
            load_failed=status.phase is Phase.RUNNING and self._prober.load_failed(record.key.uid),
            leaving=record.delete_requested_at is not None
            or record.spec.workload.desired is Desired.STOPPED,
            deleting=record.delete_requested_at is not None,
            ended_at=status.finished_at,
        )

    def _perform(self, service: ServiceRecord, action: ServiceAction) -> None:
        """Every action may be performed twice, and by a leader that is none any more: what is
        too much goes again.
        """
        now, uid = self._clock(), service.key.uid
        if isinstance(action, MakeReplica):
            self._make_replica(service, action.desired)
        elif isinstance(action, StopReplica):
            event = Event(
                now, Reason.CANCEL_REQUESTED, f"{service.key.name} does not need it any more"
            )
            stopping = service.spec.desired is Desired.STOPPED
            stopped = partial(_stop_replica, grace_s=service.spec.grace_s if stopping else None)
            self._store.change_spec(REPLICA, action.uid, stopped, now=now, events=[event])
        elif isinstance(action, DropReplica):
            later = "there are later ones whose output is kept"
            why = later if service.delete_requested_at is None else f"{service.key.name} is deleted"
            self._store.request_delete(
                REPLICA, action.uid, now=now, events=[Event(now, Reason.DELETE_REQUESTED, why)]
            )
        else:
            with suppress(Conflict):  # a replica was made just now: it wakes its service
                self._store.delete(MODEL_SERVICE, uid, fence=self._fence)

    def _make_replica(self, service: ServiceRecord, desired: DesiredReplica) -> None:
        now, uid = self._clock(), service.key.uid
        name = replica_name(uid, desired)
        spec = specs.replica(service.spec.made_of(desired.template), self._loading, self._limits)
        message = f"replica {desired.number} of {service.key.name}"
        self._store.create(
            REPLICA,
            org=service.key.org,
            name=name,
            owner=service.owner,
            spec=spec.with_defaults(self._defaults),
            status=WorkloadStatus(queued_at=now, reason=Reason.SUBMITTED),
            now=now,
            events=[Event(now, Reason.SUBMITTED, message)],
            # The key makes this idempotent: a repeated pass or a second leader creates no second
            # replica.
            idempotency_key=f"replica {name}",
            parent=parent_of_replicas(uid),
        )


def _stop_replica(spec: ReplicaSpec, grace_s: float | None) -> ReplicaSpec:
    return spec.with_workload(spec.workload.stopped(grace_s))


def replica_name(service_uid: str, desired: DesiredReplica) -> str:
    """The name of a replica, which says whose and which it is."""
    return f"{service_uid}-{desired.number}"


def number_of(name: str) -> int:
    """The number of the replica of that name."""
    return int(name.rpartition("-")[2])

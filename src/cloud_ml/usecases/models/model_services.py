"""What a caller may ask of model services. Blocking; callers in an event loop use a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from cloud_ml.domain.quotas import Excess, QuotaOf, QuotaSpec
from cloud_ml.domain.record_sizes import units_of
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import (
    MODEL_SERVICE,
    REPLICA,
    ServiceRecord,
    name_of,
)
from cloud_ml.domain.services.releases import change_fields, retry_release
from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.services.spec import Candidate, ServiceSpec
from cloud_ml.domain.services.status import ServicePhase, ServiceStatus
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import (
    NO_DEFAULT_LIMITS,
    DefaultLimits,
    Desired,
    WorkloadSpec,
    change_workload,
)
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest
from cloud_ml.models.secrets.arguments import fill_masked_arguments
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import ServiceUpdate
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.grace import grace_seconds
from cloud_ml.usecases.masking import commands_of, fill_masks, masking_events, refuse_masks
from cloud_ml.usecases.models.redeployment import has_failed, replace_failed, to_be_replaced
from cloud_ml.usecases.models.service_checks import ServiceChecks
from cloud_ml.usecases.models.service_lookup import ServiceLookup
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.repeated_requests import limit_of_new
from cloud_ml.usecases.storage.objects import Storage


class ModelServices(ServiceLookup):
    """Create, look at, change, start, stop and delete services; ``scope`` is as in
    ``TrainJobs``.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        clock: Clock,
        *,
        quota_of: QuotaOf = lambda _: QuotaSpec(),
        keep: int = 5,
        records: RecordLimits | None = None,
        defaults: DefaultLimits = NO_DEFAULT_LIMITS,
        longest_call_s: float = 300.0,
        grace_limit_s: float = 3600.0,
        check_secrets: Callable[[str, Sequence[str] | None], None] = lambda _org, _secrets: None,
        refer: Callable[[str, Sequence[str]], str] = lambda _org, _uris: "",
    ) -> None:
        super().__init__(store)
        self._checks = ServiceChecks(
            store,
            storage,
            quota_of=quota_of,
            defaults=defaults,
            longest_call_s=longest_call_s,
            refer=refer,
        )
        self._grace_limit_s = grace_limit_s
        self._check_secrets = check_secrets
        self._records = records or RecordLimits(store, clock, 0)
        self._keep = keep
        self._clock = clock

    def create(
        self,
        caller: Identity,
        service: ModelService,
        *,
        capacity: Capacity | None = None,
        notes: Sequence[str] = (),
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> ServiceRecord:
        """Take a service, or answer with the one that this idempotency key has made already.

        A service that failed is replaced by one of its name and version.

        ``notes`` are sentences that the user should see as warnings on the service. With
        ``capacity``, what the engine has in all, a service is refused whose replicas could never
        start.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The server cannot do what a field asks for.
            AlreadyExists: There is one of this name and version; ``same_spec`` tells whether an
                equal one.
            Conflict: The idempotency key was used for another service.
        """
        permit(caller, Operation.RUN_JOBS)
        refuse_masks(
            service.environment,
            service.model_args,
            commands_of(service),
            arguments_field="model_args",
        )
        self._checks.check_offered(caller.org, service)
        self._check_secrets(caller.org, service.secrets)
        now, name = self._clock(), name_of(service.model_name, service.model_version)
        saved = service.save_mode
        spec = specs.from_wire(service)
        if capacity is not None:
            self._checks.check_room(spec, capacity)
        with limit_of_new(self._store, MODEL_SERVICE, caller.org, idempotency_key):
            standing = to_be_replaced(self._store, caller.org, service)
            # A service that replaces a failed one is already counted, unless it is larger.
            if standing is None or units_of(spec) > units_of(standing.spec):
                self._records.check(MODEL_SERVICE, caller.org, "model services", spec)
            self._checks.check_quota(caller.org, name, spec, counted=not saved)
        # Do this before creating the service. Otherwise the checkpoint could be removed in
        # between.
        self._checks.refer_to(caller.org, service)
        event = Event(
            now,
            Reason.SAVED if saved else Reason.SUBMITTED,
            f"{'saved' if saved else 'created'} by {caller.user}",
        )
        try:
            record = self._store.create(
                MODEL_SERVICE,
                org=caller.org,
                name=name,
                owner=caller.user,
                spec=spec,
                status=ServiceStatus(phase=ServicePhase.SAVED if saved else ServicePhase.STARTING),
                now=now,
                events=[
                    event,
                    *masking_events(
                        service.environment, now, service.model_args, commands_of(service)
                    ),
                    *(Event(now, Reason.FIELD_IGNORED, note, EventType.WARNING) for note in notes),
                ],
                idempotency_key=idempotency_key,
                once=once,
            )
        except AlreadyExists as error:
            replacing = replace_failed(
                self._store,
                caller,
                service,
                now=now,
                notes=notes,
                idempotency_key=idempotency_key,
                once=once,
            )
            if replacing is None:
                raise self._name_taken(caller.org, service) from error
            record = replacing
        if record.spec.submitted != service:
            raise Conflict(
                f"the idempotency key has made another service, {record.key.name}",
                field="Idempotency-Key",
                allowed="a key for each service",
            )
        return record

    def update(
        self,
        scope: str | None,
        name: tuple[str, str],
        caller: Identity,
        change: ServiceUpdate,
        *,
        capacity: Capacity | None = None,
        once: Once | None = None,
    ) -> ServiceRecord:
        """Change fields of a service; what makes replicas differ is rolled out one replica after
        the other.

        With ``canary`` it is tried beside what is served, on so many percent of calls.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: A field is wrong.
            Conflict: What is served is to be changed while a candidate is tried, or nothing is
                served yet beside which one could be.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, *name)
        given = {
            each.name: value
            for each in fields(change)
            if (value := getattr(change, each.name)) is not None
        }
        if not given:
            raise InvalidRequest(
                "nothing is to be changed",
                allowed="at least one of " + ", ".join(each.name for each in fields(change)),
            )
        _fill_shown_values(record, given)
        share = given.pop("canary", None)
        served, failure = record.status.serving_template, has_failed(record)

        def change_of(spec: ServiceSpec) -> ServiceSpec:
            after = change_fields(spec, given, share, served=served, keep=self._keep)
            return retry_release(after, failure) if failure is not None and share is None else after

        after = change_of(record.spec)
        tried = after.candidate if share is not None else None
        self._checks.check_offered(
            record.key.org, tried.submitted if tried is not None else after.submitted
        )
        if capacity is not None and {"cpu_limit", "memory_limit"} & given.keys():
            self._checks.check_room(after, capacity)
        if "secrets" in given:
            self._check_secrets(record.key.org, given["secrets"])
        if units_of(after) > units_of(record.spec):
            self._records.check(MODEL_SERVICE, record.key.org, "model services", after)
        self._checks.check_quota(
            record.key.org,
            record.key.name,
            after,
            counted=record.status.phase is ServicePhase.FAILED,
        )
        if tried is not None:
            _check_served(record, tried)
        self._checks.refer_to(
            record.key.org, tried.submitted if tried is not None else after.submitted
        )
        now = self._clock()
        events = [_update_event(record, after, list(given), caller.user, now)]
        rolls = share is None and after.template != record.spec.template and record.status.ready > 0
        if rolls and (full := self._checks.excess_of_another(record, after)):
            events.append(
                Event(now, Reason.QUOTA_EXCEEDED, _in_place(record, full), EventType.WARNING)
            )
        return self._store.change_spec(
            MODEL_SERVICE,
            record.key.uid,
            # The store applies the change to the current spec, which may differ from the one read
            # above.
            change_of,
            now=now,
            events=events,
            once=once,
        )

    def notices(self, record: ServiceRecord) -> Sequence[str]:
        """What a user of the service should know before a change: that a roll-out interrupts it."""
        if (
            found := self._checks.excess_of_another(record, record.spec)
        ) and record.spec.desired is Desired.RUN:
            return [_in_place(record, found)]
        return []

    def want(
        self,
        scope: str | None,
        name: tuple[str, str],
        caller: Identity,
        desired: Desired,
        *,
        grace: str | None = None,
        once: Once | None = None,
    ) -> ServiceRecord:
        """Start or stop a service; what is so already is success. A start also tries a release
        again that failed.

        ``grace`` is the time that replicas have between SIGTERM and SIGKILL when they are stopped.
        A stop that goes on is shortened by a later one with less.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: ``grace`` is no duration, or too long.
        """
        permit(caller, Operation.RUN_JOBS)
        grace_s = grace_seconds("grace", grace, self._grace_limit_s)
        record = self.find(scope, *name)
        if desired is Desired.RUN:
            self._checks.check_quota(record.key.org, record.key.name, record.spec, counted=True)
        now, word = self._clock(), "start" if desired is Desired.RUN else "stop"
        reason = Reason.START_REQUESTED if desired is Desired.RUN else Reason.CANCEL_REQUESTED
        failed = has_failed(record) if desired is Desired.RUN else None

        def change(spec: ServiceSpec) -> ServiceSpec:
            spec = spec.with_desired(desired, grace_s)
            return spec if failed is None else retry_release(spec, failed)

        if grace_s is not None:
            self._shorten(record, grace_s)
        return self._store.change_spec(
            MODEL_SERVICE,
            record.key.uid,
            change,
            now=now,
            events=[Event(now, reason, f"{word} requested by {caller.user}")],
            once=once,
        )

    def _shorten(self, record: ServiceRecord, grace_s: float) -> None:
        """Have replicas that are being stopped end sooner."""

        def change(workload: WorkloadSpec) -> WorkloadSpec:
            longer = workload.grace_s is None or workload.grace_s > grace_s
            return (
                workload.stopped(grace_s)
                if workload.desired is Desired.STOPPED and longer
                else workload
            )

        for replica in self.replicas(record).items:
            if not replica.status.phase.terminal:
                self._store.change_spec(
                    REPLICA,
                    replica.key.uid,
                    lambda spec: change_workload(spec, change),
                    now=self._clock(),
                )

    def delete(
        self,
        scope: str | None,
        name: tuple[str, str],
        caller: Identity,
        *,
        once: Once | None = None,
    ) -> ServiceRecord:
        """Ask for a service's removal: its replicas end, and then its name is free.

        Raises:
            NotFound: There is no such service.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self.find(scope, *name)
        now = self._clock()
        events = (
            []
            if record.delete_requested_at
            else [Event(now, Reason.DELETE_REQUESTED, f"deletion requested by {caller.user}")]
        )
        return self._store.request_delete(
            MODEL_SERVICE, record.key.uid, now=now, events=events, once=once
        )

    def _name_taken(self, org: str, service: ModelService) -> AlreadyExists:
        name = name_of(service.model_name, service.model_version)
        standing = self._store.find(MODEL_SERVICE, org, name)
        return AlreadyExists(
            f"there is a model service {service.model_name} {service.model_version} already",
            same_spec=standing is not None and standing.spec.submitted == service,
            field="model_name",
            value=service.model_name,
            allowed="a name and version that are not in use; delete the other service to use them "
            "again",
        )


def _in_place(record: ServiceRecord, full: Sequence[Excess]) -> str:
    count = replicas_of(record.spec, record.status)
    return (
        f"a roll-out replaces replicas in place, so that at most {max(0, count - 1)} of {count} "
        "answer meanwhile: " + "; ".join(one.sentence() for one in full)
    )


def _check_served(record: ServiceRecord, tried: Candidate) -> None:
    """Refuse a new candidate where nothing could answer the other calls.

    Raises:
        Conflict: The service is not to answer, or its own release has not answered yet.
    """
    spec, status = record.spec, record.status
    if spec.candidate is not None and spec.candidate.template == tried.template:
        return
    if spec.desired is not Desired.RUN or record.delete_requested_at is not None:
        why = f"{record.key.name} is {status.phase}"
    elif status.serving_template != spec.template:
        why = f"release {spec.template} of {record.key.name} does not answer yet; it is {status.phase}"
    else:
        return
    raise Conflict(
        f"{why}: there is nothing beside which a candidate could be tried",
        field="canary", value=tried.share, allowed="a service that answers",
        hint="wait until it answers, or leave canary out to change it at once",
    )  # fmt: skip


def _update_event(
    record: ServiceRecord, after: ServiceSpec, given: Sequence[str], user: str, now: datetime
) -> Event:
    """What an update does, for the events of the service."""
    before, tried = record.spec.candidate, after.candidate
    changes = f"{', '.join(given)} changed by {user}" if given else f"by {user}"
    if tried is None or tried == before:
        return Event(now, "Updated", changes)
    if before is not None and before.template == tried.template:
        what = f"{tried.share} instead of {before.share} % of calls for release {tried.template}"
        return Event(now, "CanaryChanged", f"{what}, {changes}")
    what = f"release {tried.template} is tried with {tried.share} % of calls"
    return Event(now, "CanaryStarted", f"{what}, {changes}")


def _fill_shown_values(record: ServiceRecord, given: dict[str, Any]) -> None:
    """Put the stored values in the place of masks: a view may be sent back with changes.

    Raises:
        InvalidRequest: A mask is left.
    """
    spec = record.spec
    latest = spec.candidate.submitted if spec.candidate is not None else spec.submitted
    if "environment" in given:
        given["environment"] = fill_masks(given["environment"], latest.environment)
    if "model_args" in given:
        given["model_args"] = fill_masked_arguments(given["model_args"], latest.model_args)
    refuse_masks(given.get("environment"), given.get("model_args"), arguments_field="model_args")

"""What may be asked of quotas: shown to everybody, set by admins, applied for by owners.
Blocking.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.quotas import (
    APPLICATION,
    QUOTA,
    UNLIMITED,
    ApplicationSpec,
    Decision,
    Limits,
    QuotaSpec,
)
from cloud_ml.domain.records import Record
from cloud_ml.domain.tenancy import SYSTEM, Operation, StandingStatus
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.errors import AlreadyExists, Conflict, Forbidden, InvalidRequest, NotFound
from cloud_ml.models import common
from cloud_ml.models.admin import quota
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.rules import with_change
from cloud_ml.usecases import usage
from cloud_ml.usecases.access.identities import Identities, Identity, Organisation, everything
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.limits import QuotaLimits
from cloud_ml.usecases.storage.objects import Storage

ApplicationRecord = Record[ApplicationSpec, StandingStatus]

EVERYBODY = "-1"
_KIND_OF = {"jobs": "train", "models": "model", "dev": "dev"}


class Quotas:
    """Show, set and apply for quotas. An organisation of somebody else is as absent as one that
    never was.
    """

    def __init__(
        self,
        store: StateStore,
        identities: Identities,
        storage: Storage,
        limits: QuotaLimits,
        clock: Clock,
        *,
        open_applications: int,
    ) -> None:
        self._store = store
        self._identities = identities
        self._storage = storage
        self._limits = limits
        self._clock = clock
        self._open_applications = open_applications

    def of(self, org: str) -> QuotaSpec:
        """The quota of an organisation, as it is in force."""
        return self._limits(org)

    def show(self, caller: Identity, org: str | None = None) -> list[quota.OrgQuota]:
        """The quota of an organisation, by default the caller's; of all, for an admin who says
        ``-1``.

        Raises:
            Forbidden: ``-1`` from somebody who is no administrator.
            NotFound: There is no such organisation.
        """
        if org == EVERYBODY:
            if not caller.admin:
                raise Forbidden(
                    "only an administrator may see the quotas of all organisations",
                    field="org",
                    value=org,
                    hint="See those of your own with `cloudml quota list`.",
                )
            return [self._to_wire(one, counted=False) for one in self._identities.organisations()]
        return [self._to_wire(self._identities.named(caller, org))]

    def set(
        self, caller: Identity, org: str, change: quota.QuotaChange, *, once: Once | None = None
    ) -> quota.OrgQuota:
        """Set limits of an organisation. Jobs that wait start as soon as they fit; what runs runs
        on.

        Raises:
            Forbidden: The caller is no admin.
            NotFound: There is no such organisation.
            InvalidRequest: A limit is none.
        """
        permit(caller, Operation.MANAGE_PLATFORM)
        organisation = self._identities.named(caller, org)
        self.edit(organisation.name, lambda spec: _change_limits(spec, change), once=once)
        return self._to_wire(organisation)

    def edit(
        self, org: str, change: Callable[[QuotaSpec], QuotaSpec], *, once: Once | None = None
    ) -> QuotaSpec:
        """Replace what was set for an organisation by ``change`` of it."""
        record = self._store.find(QUOTA, SYSTEM, org)
        if record is None:
            unset, first = QuotaSpec(), change(QuotaSpec())
            try:
                return self._store.create(
                    QUOTA,
                    org=SYSTEM,
                    name=org,
                    owner=org,
                    spec=first,
                    status=StandingStatus(),
                    now=self._clock(),
                    once=with_change(once, unset, first),
                ).spec
            except AlreadyExists:  # another server was faster
                if (record := self._store.find(QUOTA, SYSTEM, org)) is None:
                    raise
        return self._store.change_spec(
            QUOTA, record.key.uid, change, now=self._clock(), once=once
        ).spec

    def apply(
        self,
        caller: Identity,
        request: quota.NewApplication,
        org: str | None = None,
        *,
        once: Once | None = None,
    ) -> quota.Application:
        """Ask for other limits. Nothing changes until an admin approves.

        Raises:
            Forbidden: The caller is no owner.
            NotFound: There is no such organisation.
            InvalidRequest: An amount is none.
            Conflict: Too many applications are open.
        """
        permit(caller, Operation.APPLY_FOR_QUOTA)
        organisation = self._identities.named(caller, org)
        if request.service not in quota.SERVICES:
            raise common.refuse("service", request.service, "one of " + ", ".join(quota.SERVICES))
        if (request.cpu, request.memory, request.gpu) == (None, None, None):
            raise InvalidRequest("no limit is given", field="cpu", allowed="cpu, memory or gpu")
        common.check_text("mail", request.mail, limit=254, allow_empty=True)
        spec = ApplicationSpec(
            service=request.service,
            cpu_millis=_amount("cpu", request.cpu),
            memory_bytes=_amount("memory", request.memory),
            gpus=_amount("gpu", request.gpu),
            user=caller.user,
            mail=request.mail,
        )
        self._check_few_open(organisation)
        record = self._store.create(
            APPLICATION,
            org=organisation.name,
            name=secrets.token_hex(6),
            owner=caller.user,
            spec=spec,
            status=StandingStatus(),
            now=self._clock(),
            once=once,
        )
        return _application(record)

    def applications(self, caller: Identity, org: str | None = None) -> list[quota.Application]:
        """Applications of an organisation, newest first; of all, for an admin who names none or
        says ``-1``.

        Raises:
            NotFound: There is no such organisation.
        """
        if caller.admin and org in (None, EVERYBODY):
            return [
                one
                for organisation in self._identities.organisations()
                for one in self._of(organisation)
            ][::-1]
        return self._of(self._identities.named(caller, org))[::-1]

    def decide(
        self, caller: Identity, name: str, decision: Decision, *, once: Once | None = None
    ) -> quota.Application:
        """Approve an application, which sets the limits it asks for, or decline it.

        The limits are set first: a crash in between leaves an open application, which can be
        approved again.

        Raises:
            Forbidden: The caller is no admin.
            NotFound: There is no such application.
            Conflict: It was decided before.
        """
        permit(caller, Operation.MANAGE_PLATFORM)
        found = (
            self._store.find(APPLICATION, organisation.name, name) if len(name) <= 63 else None
            for organisation in self._identities.organisations()
        )
        record = next((one for one in found if one is not None), None)
        if record is None:
            raise NotFound(
                f"there is no application {name[:63]}", field="application", value=name[:63]
            )
        if decision is Decision.APPROVED and record.spec.decision is Decision.OPEN:
            self.edit(record.key.org, lambda spec: _grant_limits(spec, record.spec))

        def decided(spec: ApplicationSpec) -> ApplicationSpec:
            # Checked here, where a repeated request is recognised before.
            if spec.decision is not Decision.OPEN:
                raise Conflict(
                    f"the application was {spec.decision} by {spec.decided_by}", field="state"
                )
            return replace(
                spec, decision=decision, decided_by=caller.user, decided_at=self._clock()
            )

        return _application(
            self._store.change_spec(
                APPLICATION, record.key.uid, decided, now=self._clock(), once=once
            )
        )

    def _of(self, organisation: Organisation) -> list[quota.Application]:
        found = (
            self._store.get(APPLICATION, line.key.uid)
            for line in everything(self._store, APPLICATION, organisation.name)
        )
        return [_application(record) for record in found if record is not None]

    def _check_few_open(self, organisation: Organisation) -> None:
        open_ones = [one for one in self._of(organisation) if one.state == Decision.OPEN]
        if len(open_ones) >= self._open_applications:
            raise Conflict(
                f"{len(open_ones)} applications of {organisation.name} are open",
                field="org",
                value=organisation.name,
                allowed=f"at most {self._open_applications}",
                hint="wait until they are decided",
            )

    def _to_wire(self, organisation: Organisation, *, counted: bool = True) -> quota.OrgQuota:
        spec, used = (
            self._limits(organisation.name),
            usage.measure_use(self._store, organisation.name, TRAIN_JOB),
        )
        models = usage.used_by_services(self._store, organisation.name)
        boards = usage.measure_use(self._store, organisation.name, TENSORBOARD)
        total = usage.together(usage.together(used, models), boards)
        taken = {"train": used, "model": models, "total": total}
        limits = {"train": spec.train, "model": spec.model, "dev": spec.dev, "total": spec.total}
        return quota.OrgQuota(
            org=organisation.name,
            org_id=str(organisation.number),
            items=[
                _line(kind, limits[kind], taken.get(kind, usage.Used())) for kind in quota.KINDS
            ],
            storage_limit=_shown_limit(spec.storage_bytes),
            storage_used=self._storage.usage(organisation.name).bytes if counted else None,
            points_limit=_shown_limit(spec.points),
            points_used=self._store.metrics.points_of_org(organisation.name),
        )


def _change_limits(spec: QuotaSpec, change: quota.QuotaChange) -> QuotaSpec:
    def limits(kind: str, own: Limits, request: quota.LimitsChange) -> Limits:
        def limit(resource: str, text: str | None, stays: int | None) -> int | None:
            return stays if text is None else quota.limit_of(f"{kind}.{resource}", resource, text)

        return Limits(
            cpu_millis=limit("cpu", request.cpu, own.cpu_millis),
            memory_bytes=limit("memory", request.memory, own.memory_bytes),
            gpus=limit("gpu", request.gpu, own.gpus),
            count=limit("count", request.count, own.count),
        )

    storage = (
        spec.storage_bytes
        if change.storage is None
        else quota.limit_of("storage", "storage", change.storage)
    )
    points = (
        spec.points if change.points is None else quota.limit_of("points", "points", change.points)
    )
    return replace(
        spec,
        train=limits("train", spec.train, change.train),
        model=limits("model", spec.model, change.model),
        dev=limits("dev", spec.dev, change.dev),
        total=limits("total", spec.total, change.total),
        storage_bytes=storage,
        points=points,
    )


def _grant_limits(spec: QuotaSpec, request: ApplicationSpec) -> QuotaSpec:
    kind = _KIND_OF[request.service]
    limits: Limits = getattr(spec, kind)
    amounts = {
        "cpu_millis": request.cpu_millis,
        "memory_bytes": request.memory_bytes,
        "gpus": request.gpus,
    }
    granted: Any = replace(
        limits, **{name: amount for name, amount in amounts.items() if amount is not None}
    )
    return replace(spec, **{kind: granted})


def _amount(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    amount = quota.limit_of(field, field, text)
    if amount is None or amount == UNLIMITED:
        raise common.refuse(field, text, "an amount")
    return amount


def _line(kind: str, limits: Limits, used: usage.Used) -> quota.QuotaLine:
    cpu = _shown_limit(limits.cpu_millis)
    return quota.QuotaLine(
        kind=kind,
        cpu_limit=None if cpu is None else cpu / 1000,
        cpu_used=used.cpu_millis / 1000,
        memory_limit=_shown_limit(limits.memory_bytes),
        memory_used=used.memory_bytes,
        gpu_limit=_shown_limit(limits.gpus),
        gpu_used=used.gpus,
        count_limit=_shown_limit(limits.count),
        count_used=used.jobs,
    )


def _shown_limit(limit: int | None) -> int | None:
    return None if limit == UNLIMITED else limit


def _application(record: ApplicationRecord) -> quota.Application:
    spec = record.spec
    return quota.Application(
        id=record.key.name,
        org=record.key.org,
        user=spec.user,
        service=spec.service,
        cpu=None if spec.cpu_millis is None else spec.cpu_millis / 1000,
        memory=spec.memory_bytes,
        gpu=spec.gpus,
        mail=spec.mail,
        state=spec.decision.value,
        created_at=record.created_at,
        decided_by=spec.decided_by,
        decided_at=spec.decided_at,
    )

"""A service that failed is replaced by deploying one of its name and version again. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import MODEL_SERVICE, ServiceRecord, name_of
from cloud_ml.domain.services.releases import redeploy
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity


def has_failed(record: ServiceRecord) -> int | None:
    """The release that is to be served, where it cannot be."""
    template = record.spec.template
    return template if record.status.failure_of(template) is not None else None


def to_be_replaced(store: StateStore, org: str, service: ModelService) -> ServiceRecord | None:
    """The failed service that a new one would replace."""
    standing = _standing(store, org, service)
    return standing if standing is not None and _is_failed(standing) else None


def _standing(store: StateStore, org: str, service: ModelService) -> ServiceRecord | None:
    found = store.find(MODEL_SERVICE, org, name_of(service.model_name, service.model_version))
    return found if found is not None and found.delete_requested_at is None else None


def _is_failed(record: ServiceRecord) -> bool:
    return record.status.phase is ServicePhase.FAILED and has_failed(record) is not None


def replace_failed(
    store: StateStore,
    caller: Identity,
    service: ModelService,
    *,
    now: datetime,
    notes: Sequence[str] = (),
    idempotency_key: str | None = None,
    once: Once | None = None,
) -> ServiceRecord | None:
    """The service in place of one that failed; ``None`` where the one that stands is not to be
    replaced.

    The record stays and its release gets a new number, so that states only move forward. A request
    that is sent again with its idempotency key is answered with what it made.
    """
    standing = _standing(store, caller.org, service)
    if standing is None:
        return None
    if idempotency_key is not None and standing.spec.redeployed_by == idempotency_key:
        return standing
    if not _is_failed(standing):
        return None
    failed, desired = standing.spec.template, specs.from_wire(service).desired

    def change(spec: ServiceSpec) -> ServiceSpec:
        if spec.template != failed:  # somebody else was faster
            return spec
        return replace(redeploy(spec, service, desired), redeployed_by=idempotency_key or "")

    message = f"deployed again by {caller.user}, in place of release {failed}, which failed"
    record = store.change_spec(
        MODEL_SERVICE,
        standing.key.uid,
        change,
        now=now,
        events=[
            Event(now, Reason.SUBMITTED, message),
            *(Event(now, Reason.FIELD_IGNORED, note, EventType.WARNING) for note in notes),
        ],
        once=once,
    )
    return record if record.spec.submitted == service else None

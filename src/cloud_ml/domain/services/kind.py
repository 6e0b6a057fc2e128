"""The kinds under which model services and their replicas are stored."""

from __future__ import annotations

from collections.abc import Collection

from cloud_ml.domain.jobs.kind import label_tag
from cloud_ml.domain.record_sizes import size_tags
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.services.spec import SERVICE_LABEL, ReplicaSpec, ServiceSpec, upgraded_replica
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.domain.workloads.phases import WorkloadStatus

ServiceRecord = Record[ServiceSpec, ServiceStatus]
ReplicaRecord = Record[ReplicaSpec, WorkloadStatus]


def service_tag(uid: str) -> str:
    """The tag of the replicas of a service."""
    return label_tag(SERVICE_LABEL, uid)


def name_of(model_name: str, version: str) -> str:
    """The name of the record of a service. No two services share one: neither part has a slash."""
    return f"{model_name}/{version}"


def _tags(spec: ServiceSpec) -> Collection[str]:
    return {label_tag(name, value) for name, value in (spec.submitted.labels or {}).items()}.union(
        size_tags(spec)
    )


MODEL_SERVICE = Kind("model_service", ServiceSpec, ServiceStatus, spec_tags=_tags)
REPLICA = Kind(
    "replica",
    ReplicaSpec,
    WorkloadStatus,
    spec_tags=lambda spec: {service_tag(spec.service)},
    upgrade=upgraded_replica,
)

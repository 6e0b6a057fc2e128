"""The kinds under which model services and their replicas are stored."""

from __future__ import annotations

from collections.abc import Collection

from cloud_ml.domain.jobs.kind import label_tag
from cloud_ml.domain.record_sizes import size_tags
from cloud_ml.domain.records import Kind, ParentRef, Record
from cloud_ml.domain.services.spec import ReplicaSpec, ServiceSpec, upgraded_replica
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.domain.workloads.phases import WorkloadStatus

ServiceRecord = Record[ServiceSpec, ServiceStatus]
ReplicaRecord = Record[ReplicaSpec, WorkloadStatus]


def name_of(model_name: str, version: str) -> str:
    """The name of the record of a service. No two services share one: neither part has a slash."""
    return f"{model_name}/{version}"


def _tags(spec: ServiceSpec) -> Collection[str]:
    return {label_tag(name, value) for name, value in (spec.submitted.labels or {}).items()}.union(
        size_tags(spec)
    )


MODEL_SERVICE = Kind("model_service", ServiceSpec, ServiceStatus, spec_tags=_tags)
REPLICA = Kind("replica", ReplicaSpec, WorkloadStatus, upgrade=upgraded_replica)
"""A replica's parent is its service."""


def parent_of_replicas(uid: str) -> ParentRef:
    """What the replicas of the service with this uid name as their parent."""
    return ParentRef(MODEL_SERVICE.name, uid)

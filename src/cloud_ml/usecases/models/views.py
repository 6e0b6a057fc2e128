"""Model services as the two HTTP surfaces show them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from cloud_ml.domain.records import Summary
from cloud_ml.domain.services.failures import served_release
from cloud_ml.domain.services.kind import ReplicaRecord, ServiceRecord
from cloud_ml.domain.services.releases import differing
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.services.status import (
    WIRE_STATES,
    CandidateStatus,
    ServicePhase,
    ServiceStatus,
)
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models.secrets.arguments import masked_arguments
from cloud_ml.models.secrets.secret import mask_variables
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import (
    EarlierRelease,
    EndedReplica,
    FailedUpdate,
    Replica,
    Service,
    ServiceCandidate,
    ServiceMetrics,
    ServiceSummary,
)
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.jobs.views import original_time
from cloud_ml.usecases.masking import masked_commands
from cloud_ml.usecases.models.replicas import Replicas, number_of, release_of


def service(
    record: ServiceRecord,
    replicas: Replicas | None = None,
    host: str = "",
    *,
    tls: bool = False,
    notices: Sequence[str] = (),
) -> Service:
    """A service as the modern surface answers it. ``host`` is where the gateway is reached."""
    name, _, version = record.key.name.partition("/")
    status = record.status
    replicas = replicas or Replicas()
    rows = [_replica(each, record) for each in replicas.items]
    ready, phase = _ready_of(record, rows)
    failure = status.failure_of(record.spec.template)
    return Service(
        uid=record.key.uid,
        name=name,
        version=version,
        org=record.key.org,
        owner=record.owner,
        revision=record.revision,
        phase=phase.value,
        state=_state(phase, deleting=record.delete_requested_at is not None),
        created_at=record.created_at,
        updated_at=record.updated_at,
        address=_address(host, status.port, status.phase),
        tls=tls,
        reason=status.reason,
        message=status.message,
        wanted=replicas_of(record.spec, status),
        ready=ready,
        deleting=record.delete_requested_at is not None,
        replicas=rows,
        ended=[_to_ended_replica(each, record) for each in replicas.ended],
        spec=submitted_fields(record.spec.submitted),
        release=record.spec.template,
        candidate=_candidate(record),
        earlier=[
            EarlierRelease(release=each.template, model_uri=each.submitted.model_uri)
            for each in record.spec.earlier
        ],
        notices=list(notices),
        failed=None
        if failure is None
        else FailedUpdate(failure.release, failure.reason, failure.message),
    )


def _ready_of(record: ServiceRecord, rows: Sequence[Replica]) -> tuple[int, ServicePhase]:
    """How many replicas answer and the phase that goes with that, so that the service says what its
    replicas say.

    A replica that ended after the last look at the service is not counted.
    """
    status = record.status
    stable = {desired.number for desired in status.wishes if not desired.trial} & set(
        status.answering
    )
    gone = {one.number for one in rows if not one.ready} & stable
    ready = max(0, status.ready - len(gone))
    if (
        status.phase is ServicePhase.FAILED
        and status.failed
        and status.failure_of(record.spec.template) is None
    ):
        return ready, ServicePhase.STARTING  # it was changed, and is looked at in a moment
    few = status.phase is ServicePhase.RUNNING and ready < replicas_of(record.spec, status)
    return ready, ServicePhase.DEGRADED if few else status.phase


def _candidate(record: ServiceRecord) -> ServiceCandidate | None:
    spec, tried, stands = record.spec, record.spec.candidate, record.status.candidate
    if tried is None:
        return None
    if stands is None or stands.template != tried.template:  # not looked at yet
        stands = CandidateStatus(tried.template)
    shown = submitted_fields(tried.submitted)
    return ServiceCandidate(
        release=tried.template,
        share=tried.share,
        phase=stands.phase.value,
        reason=stands.reason,
        message=stands.message,
        wanted=candidates_of(spec, record.status),
        ready=stands.ready,
        changes={name: shown.get(name) for name in differing(tried.submitted, spec.submitted)},
    )


def summary(line: Summary, host: str = "", status: ServiceStatus | None = None) -> ServiceSummary:
    """A line of the modern list; ``status`` is that of the record, if it is there."""
    name, _, version = line.key.name.partition("/")
    return ServiceSummary(
        uid=line.key.uid,
        name=name,
        version=version,
        org=line.key.org,
        owner=line.owner,
        phase=line.index,
        state=_state(ServicePhase(line.index), deleting=line.deleting),
        created_at=line.created_at,
        updated_at=line.updated_at,
        address=_address(host, status.port if status else 0, ServicePhase(line.index)),
        deleting=line.deleting,
        reason=status.reason if status else "",
        message=status.message if status else "",
    )


def submitted_fields(model: ModelService) -> dict[str, Any]:
    """The fields that were given, values masked where the names of variables and flags suggest a
    secret.
    """
    shown = {
        each.name: value
        for each in fields(model)
        if (value := getattr(model, each.name)) is not None
    }
    if model.environment:
        shown["environment"] = mask_variables(model.environment)
    if model.model_args:
        shown["model_args"] = masked_arguments(model.model_args)
    return shown | masked_commands(model)


_SUBMITTED = (
    "model_name",
    "model_version",
    "model_uri",
    "fds_endpoint",
    "fds_bucket",
    "replicas",
    "cpu_limit",
    "memory_limit",
    "gpu_limit",
    "docker_image",
    "docker_command",
    "framework",
    "framework_version",
    "prepare_command",
    "finish_command",
)
"""Keys of the original document that repeat what was submitted."""


def model_document(record: ServiceRecord, organisation: Organisation, host: str) -> dict[str, Any]:
    """A service as the original wire answers create, describe, start and update. Every key that
    is read is there.
    """
    wire, status = record.spec.submitted, record.status
    address = _address(host, status.port, status.phase)
    _, phase = _ready_of(record, ())
    resting = status.phase in (ServicePhase.SAVED, ServicePhase.STOPPED)
    starts = resting and record.spec.desired is Desired.RUN
    arguments = masked_arguments(wire.model_args) if wire.model_args else wire.model_args
    document: dict[str, Any] = {}
    if status.message or status.phase is ServicePhase.FAILED:
        document["message"] = ": ".join(part for part in (status.reason, status.message) if part)
    document |= {name: getattr(wire, name) for name in _SUBMITTED} | masked_commands(wire)
    return document | {
        "model_args": shlex.join(arguments) if isinstance(arguments, list) else arguments,
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "service_port": str(status.port or ""),
        "address": address,
        "http_address": address,
        "state": "creating"
        if starts
        else _state(phase, deleting=record.delete_requested_at is not None),
        "create_time": original_time(record.created_at),
        "update_time": original_time(record.updated_at),
        "current_rank": str(wire.enable_rank),
    }


def model_row(line: Summary, organisation: Organisation, host: str, port: int) -> dict[str, Any]:
    """A line of the original list: its columns and nothing else, none of them null."""
    name, _, version = line.key.name.partition("/")
    return {
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "model_name": name,
        "model_version": version,
        "address": _address(host, port, ServicePhase(line.index)),
        "state": _state(ServicePhase(line.index), deleting=line.deleting),
        "create_time": original_time(line.created_at),
        "update_time": original_time(line.updated_at),
        "current_rank": "-",
    }


def model_metrics(found: ServiceMetrics) -> dict[str, Any]:
    """The original metrics document, summed over replicas; ``cpu`` in percent of one core."""
    return {
        "cpu": round(100 * sum(one.cores or 0.0 for one in found.items), 1),
        "memory": sum(one.memory_bytes or 0 for one in found.items),
        "network_receive": 0,
        "network_transmit": 0,
    }


def _address(host: str, port: int, phase: ServicePhase) -> str:
    """``host:port`` without a scheme, as clients of gRPC take it; empty while there is none and
    if it failed.
    """
    return f"{host}:{port}" if port and host and phase is not ServicePhase.FAILED else ""


def _state(phase: ServicePhase, *, deleting: bool) -> str:
    return "deleting" if deleting else WIRE_STATES[phase]


def _replica(record: ReplicaRecord, service: ServiceRecord) -> Replica:
    status, spec = record.status, service.spec
    release, number = release_of(record), number_of(record)
    tried = spec.candidate is not None and release == spec.candidate.template
    return Replica(
        number=number,
        uid=record.key.uid,
        phase=status.phase.value,
        ready=status.phase is Phase.RUNNING and number in service.status.answering,
        current=tried or release == served_release(spec, service.status),
        attempt=status.attempt,
        reason=status.reason,
        message=status.message,
        runtime=status.runtime,
        release=release,
        candidate=tried,
        given_up=number in service.status.given_up,
    )


def _to_ended_replica(record: ReplicaRecord, service: ServiceRecord) -> EndedReplica:
    status, release = record.status, release_of(record)
    failed = status.phase is Phase.STOPPED and service.status.failure_of(release) is not None
    return EndedReplica(
        number=number_of(record),
        uid=record.key.uid,
        phase=status.phase.value,
        attempt=status.attempt,
        reason=status.reason,
        message=f"release {release} failed" if failed else status.message,
        exit_code=status.exit_code,
        signal=status.signal,
        release=release,
        started_at=status.started_at,
        finished_at=status.finished_at,
    )

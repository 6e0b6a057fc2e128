"""A model service in normal form, and the replica that is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.jobs.spec import resources_of, upgrade_document
from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.domain.workloads.spec import (
    DefaultLimits,
    Desired,
    Program,
    RetryPolicy,
    Role,
    WorkloadSpec,
)
from cloud_ml.models import common
from cloud_ml.models.services.model_service import ModelService

MODULE = "cloud_ml.serving"
PACKAGE_URI = "cloudml:model-server"
"""Stands for the model server's own package where a job has its trainer."""
SERVICE_LABEL, TEMPLATE_LABEL = "cloudml-service", "cloudml-template"
_ENDLESS = 1_000_000_000


OF_THE_TEMPLATE = (
    "model_uri",
    "model_args",
    "cpu_limit",
    "memory_limit",
    "gpu_limit",
    "framework",
    "framework_version",
    "prepare_command",
    "finish_command",
    "environment",
    "fds_bucket",
    "call_timeout",
    "secrets",
)
"""Fields that make replicas differ."""


@dataclass(frozen=True)
class Release:
    """What replicas are made of: those fields of ``submitted`` that belong to the template, and
    its number.
    """

    template: int
    submitted: ModelService


@dataclass(frozen=True)
class Candidate:
    """A release that is tried beside the stable one: ``share`` percent of calls go to it."""

    template: int
    submitted: ModelService
    share: int


@dataclass(frozen=True)
class ServiceSpec:
    """What is to answer. ``template`` counts the changes that make replicas differ; others leave
    them alone.

    ``earlier`` are releases that have answered before this one, the latest last; ``newest`` is the
    highest number that any release had, 0 where that is this one's. ``redeployed_by`` is the
    idempotency key of the request that made the service in place of one that failed. See
    ``releases`` for what changes them. ``grace_s`` is the time that replicas have between SIGTERM
    and SIGKILL when the service is stopped; ``None`` means the operator's.
    """

    submitted: ModelService
    template: int = 1
    desired: Desired = Desired.RUN
    candidate: Candidate | None = None
    earlier: tuple[Release, ...] = ()
    newest: int = 0
    redeployed_by: str = ""
    grace_s: float | None = None

    def with_desired(self, desired: Desired, grace_s: float | None = None) -> ServiceSpec:
        """The same service, wanted differently."""
        return replace(self, desired=desired, grace_s=grace_s)

    def made_of(self, template: int) -> Release:
        """What replicas of that template are made of: the candidate, an earlier release, or what
        is served.
        """
        if self.candidate is not None and self.candidate.template == template:
            return Release(template, self.candidate.submitted)
        for each in self.earlier:
            if each.template == template != self.template:
                return each
        return Release(self.template, self.submitted)


def from_wire(service: ModelService) -> ServiceSpec:
    """Normalise a validated wire form."""
    return ServiceSpec(service, desired=Desired.SAVED if service.save_mode else Desired.RUN)


@dataclass(frozen=True)
class LoadRetries:
    """How often replicas try to load their model, seconds between tries, and seconds for a file
    that is missing.
    """

    tries: int = 3
    pause_s: float = 1.0
    outage_s: float = 60.0

    def arguments(self) -> list[str]:
        """For the model server."""
        return [
            f"--max_num_load_retries={self.tries - 1}",
            f"--load_retry_interval_micros={round(self.pause_s * 1e6)}",
            f"--load_outage_seconds={self.outage_s:g}",
        ]


DEFAULT_RETRIES = LoadRetries()


@dataclass(frozen=True)
class RequestLimits:
    """What the gateway takes from callers, in bytes: replicas take as much."""

    message_bytes: int = 64 << 20
    head_bytes: int = 16_384

    def arguments(self) -> list[str]:
        """For the model server, which has the same defaults; a model server of an earlier version
        may know no such flags.
        """
        flags = [("max_message_bytes", self.message_bytes), ("head_bytes", self.head_bytes)]
        usual = (DEFAULT_LIMITS.message_bytes, DEFAULT_LIMITS.head_bytes)
        return [
            f"--{name}={value}"
            for (name, value), default in zip(flags, usual, strict=True)
            if value != default
        ]


DEFAULT_LIMITS = RequestLimits()


def call_timeout_s(model: ModelService) -> float | None:
    """Seconds that a call of a service may take; ``None`` where the service does not say."""
    return (
        None
        if model.call_timeout is None
        else float(common.duration_seconds(str(model.call_timeout)))
    )


def _call_arguments(model: ModelService) -> list[str]:
    seconds = call_timeout_s(model)
    return [] if seconds is None else [f"--rest_api_timeout_in_ms={round(seconds * 1000)}"]


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica of the service whose uid is ``service``: a model server for the model at
    ``model_uri``.

    ``template`` is the number of the release that it is made of.
    """

    template: int
    model_uri: str
    workload: WorkloadSpec

    def with_workload(self, workload: WorkloadSpec) -> ReplicaSpec:
        """The same replica with another workload."""
        return replace(self, workload=workload)

    def with_defaults(self, defaults: DefaultLimits) -> ReplicaSpec:
        """The same replica, with ``defaults`` where the service names no limit."""
        return self.with_workload(self.workload.with_defaults(defaults))


def replica(
    release: Release,
    loading: LoadRetries = DEFAULT_RETRIES,
    limits: RequestLimits = DEFAULT_LIMITS,
) -> ReplicaSpec:
    """A replica of a release: the model server, run as any other program of the tenant, and
    again when it ends.
    """
    model = release.submitted
    arguments = (
        f"--model_name={model.model_name}",
        f"--model_base_path={model.model_uri}",
        f"--unix_socket={SOCKET}",
        "--allow_models_that_run_code",
        *loading.arguments(),
        *limits.arguments(),
        *_call_arguments(model),
        *model.arguments(),
    )
    program = Program(
        module=MODULE,
        source=PACKAGE_URI,
        arguments=arguments,
        variables={"CLOUDML_MODEL_INPUT_PATH": model.model_uri} | (model.environment or {}),
        framework=model.framework,
        framework_version=model.framework_version,
    )
    workload = WorkloadSpec(
        program=program,
        roles=(
            Role(
                "server",
                resources=resources_of(model.cpu_limit, model.memory_limit, model.gpu_limit),
            ),
        ),
        bucket=model.fds_bucket,
        secrets=tuple(model.secrets or ()),
        prepare_command=model.prepare_command or None,
        finish_command=model.finish_command or None,
        serves=True,
        retry=RetryPolicy(max_retries=_ENDLESS, longest_delay_s=30.0),
        priority=model.enable_rank,
    )
    return ReplicaSpec(release.template, model.model_uri, workload)


def upgraded_replica(document: Any) -> Any:
    """A stored spec in today's form. Version 0.1 stored a replica as a train job with labels.

    What is no spec of either form stays as it is: whoever decodes it says what is missing.
    """
    if not isinstance(document, Mapping) or "workload" in document:
        return document
    try:
        labels = document["submitted"]["labels"]
        workload = {**upgrade_document(document)["workload"], "serves": True}
        model_uri = document["submitted"]["model_input_path"]
        return {
            "template": int(labels[TEMPLATE_LABEL]),
            "model_uri": model_uri,
            "workload": workload,
        }
    except (KeyError, TypeError, ValueError):
        return document

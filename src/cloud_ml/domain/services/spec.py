"""A model service in normal form, and the replica that is made from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cloud_ml.domain.jobs.spec import Desired, JobSpec, Resources, RetryPolicy, Role
from cloud_ml.models import common
from cloud_ml.models.model_service import ModelService
from cloud_ml.models.train_job import TrainJob

MODULE = "cloud_ml.serving"
SOCKET = "serve.sock"
"""Where a replica listens, in its working folder."""
PACKAGE_URI = "cloudml:model-server"
"""Stands for the model server's own package where a job has its trainer."""
SERVICE_LABEL, TEMPLATE_LABEL = "cloudml-service", "cloudml-template"
_ENDLESS = 1_000_000_000


OF_THE_TEMPLATE = (
    "model_uri", "model_args", "cpu_limit", "memory_limit", "gpu_limit", "framework", "framework_version",
    "prepare_command", "finish_command", "environment", "fds_bucket",
    "call_timeout", "secrets",
)  # fmt: skip
"""Fields that make replicas differ."""


@dataclass(frozen=True)
class Release:
    """What replicas are made of: those fields of ``submitted`` that belong to the template, and its number."""

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
    """What is to answer. ``template`` counts the changes that make replicas differ; others leave them alone.

    ``earlier`` are releases that have answered before this one, the latest last; ``newest`` is the highest number that
    any release had, 0 where that is this one's. ``redeployed_by`` is the idempotency key of the request that made the
    service in place of one that failed. See ``releases`` for what changes them. ``grace_s`` is the time that replicas
    have between SIGTERM and SIGKILL when the service is stopped; ``None`` means the operator's.
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
        """What replicas of that template are made of: the candidate, an earlier release, or what is served."""
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
    """How often replicas try to load their model, seconds between tries, and seconds for a file that is missing."""

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


def call_timeout_s(model: ModelService) -> float | None:
    """Seconds that a call of a service may take; ``None`` where the service does not say."""
    return None if model.call_timeout is None else float(common.duration_seconds(str(model.call_timeout)))


def _call_arguments(model: ModelService) -> list[str]:
    seconds = call_timeout_s(model)
    return [] if seconds is None else [f"--rest_api_timeout_in_ms={round(seconds * 1000)}"]


def replica(name: str, service_uid: str, release: Release, loading: LoadRetries = DEFAULT_RETRIES) -> JobSpec:
    """The job that is a replica: the model server, run as any other program of the tenant, and again when it ends."""
    model = release.submitted
    arguments = [
        f"--model_name={model.model_name}", f"--model_base_path={model.model_uri}", f"--unix_socket={SOCKET}",
        "--allow_models_that_run_code", *loading.arguments(), *_call_arguments(model), *model.arguments(),
    ]  # fmt: skip
    job = TrainJob(
        name,
        MODULE,
        PACKAGE_URI,
        job_args=arguments,
        cpu_limit=model.cpu_limit,
        memory_limit=model.memory_limit,
        gpu_limit=model.gpu_limit,
        framework=model.framework,
        framework_version=model.framework_version,
        prepare_command=model.prepare_command,
        finish_command=model.finish_command,
        environment=model.environment,
        secrets=model.secrets,
        fds_bucket=model.fds_bucket,
        model_input_path=model.model_uri,
        enable_rank=model.enable_rank,
        labels={SERVICE_LABEL: service_uid, TEMPLATE_LABEL: str(release.template)},
    )
    resources = Resources(
        cpu_millis=common.cpu_millis(str(model.cpu_limit)) if model.cpu_limit else None,
        memory_bytes=common.memory_bytes(model.memory_limit) if model.memory_limit else None,
        gpus=int(model.gpu_limit or 0),
    )
    return JobSpec(
        submitted=job,
        roles=(Role("server", resources=resources),),
        arguments=tuple(arguments),
        retry=RetryPolicy(max_retries=_ENDLESS, longest_delay_s=30.0),
    )

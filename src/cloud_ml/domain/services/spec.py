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


@dataclass(frozen=True)
class ServiceSpec:
    """What is to answer. ``template`` counts the changes that make replicas differ; others leave them alone."""

    submitted: ModelService
    template: int = 1
    desired: Desired = Desired.RUN

    def with_desired(self, desired: Desired) -> ServiceSpec:
        """The same service, wanted differently."""
        return replace(self, desired=desired)

    def updated(self, service: ModelService) -> ServiceSpec:
        """The service with other fields; a new template where replicas have to be made anew."""
        unlike = [name for name in _OF_THE_TEMPLATE if getattr(service, name) != getattr(self.submitted, name)]
        return replace(self, submitted=service, template=self.template + (1 if unlike else 0))


_OF_THE_TEMPLATE = (
    "model_uri", "model_args", "cpu_limit", "memory_limit", "gpu_limit", "framework", "framework_version",
    "prepare_command", "finish_command", "environment", "fds_bucket",
)  # fmt: skip


def from_wire(service: ModelService) -> ServiceSpec:
    """Normalise a validated wire form."""
    return ServiceSpec(service, desired=Desired.SAVED if service.save_mode else Desired.RUN)


def replica(name: str, service_uid: str, spec: ServiceSpec) -> JobSpec:
    """The job that is a replica: the model server, run as any other program of the tenant, and again when it ends."""
    model = spec.submitted
    arguments = [
        f"--model_name={model.model_name}", f"--model_base_path={model.model_uri}", f"--unix_socket={SOCKET}",
        "--allow_models_that_run_code", *model.arguments(),
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
        fds_bucket=model.fds_bucket,
        model_input_path=model.model_uri,
        enable_rank=model.enable_rank,
        labels={SERVICE_LABEL: service_uid, TEMPLATE_LABEL: str(spec.template)},
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

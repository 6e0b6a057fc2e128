"""What a train job is: the wire form that was submitted, and the workload that was made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.jobs.elastic import check_elastic
from cloud_ml.domain.jobs.restarts import retry_of
from cloud_ml.domain.jobs.roles import (
    array_of,
    check_cluster_arguments,
    check_procs_per_task,
    recipe_of,
    roles_of,
)
from cloud_ml.domain.workloads.spec import (
    Desired,
    Program,
    Resources,
    WorkloadSpec,
)
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.elastic import every_s_of
from cloud_ml.models.jobs.train_job import TrainJob

_OUTPUT_PATH_FLAGS = ("--output_path", "--output-path", "-output_path")
_LOCATIONS: Mapping[str, str] = {
    "CLOUDML_OUTPUT_PATH": "output_path",
    "CLOUDML_MODEL_EXPORT_PATH": "model_export_path",
    "CLOUDML_MODEL_INPUT_PATH": "model_input_path",
    "CLOUDML_DATA_INPUT_PATH": "data_input_path",
    "CLOUDML_DATA_OUTPUT_PATH": "data_output_path",
    "CLOUDML_TENSORBOARD_LOGDIR": "tensorboard_logdir",
}
"""Variables that tell the code a field of its job."""
_WORKLOAD_FIELDS = ("roles", "retry", "wall_time_s", "disk_bytes", "grace_s", "desired")


@dataclass(frozen=True)
class JobSpec:
    """``submitted`` is kept to be shown and to be run again; ``workload`` is what runs."""

    submitted: TrainJob
    workload: WorkloadSpec

    def with_workload(self, workload: WorkloadSpec) -> JobSpec:
        """The same job with another workload."""
        return replace(self, workload=workload)


def from_wire(job: TrainJob, *, add_arguments: bool = False) -> JobSpec:
    """Normalise a validated wire form.

    Args:
        job: The wire form.
        add_arguments: Pass ``output_path`` also as an argument, unless the job's arguments have it.

    Raises:
        InvalidRequest: A field contradicts another.
    """
    recipe, array = recipe_of(job), array_of(job)
    check_cluster_arguments(job, recipe)
    check_procs_per_task(job, recipe)
    roles = roles_of(job, recipe, resources_of(job.cpu_limit, job.memory_limit, job.gpu_limit))
    retry = retry_of(job, recipe, [role.name for role in roles])
    check_elastic(job, recipe, retry.exits)
    workload = WorkloadSpec(
        program=_program_of(job, add_arguments=add_arguments),
        roles=roles,
        bucket=job.fds_bucket,
        secrets=tuple(job.secrets or ()),
        prepare_command=job.prepare_command or None,
        finish_command=job.finish_command or None,
        retry=retry,
        wall_time_s=_seconds(job.wall_time_limit),
        disk_bytes=common.memory_bytes(job.disk_limit) if job.disk_limit else None,
        grace_s=_exact_seconds(job.grace_time),
        hang_timeout_s=_exact_seconds(job.hang_timeout),
        priority=job.enable_rank,
        keeps_files=job.outputs != [],
        desired=Desired.SAVED if job.save_mode else Desired.RUN,
        recipe=recipe,
        parallel=array.parallel if array else None,
        max_failed=job.max_failed or 0 if array else 0,
        elastic_every_s=every_s_of(job.elastic),
        keep_checkpoints=_checkpoints_to_keep(job, in_array=array is not None),
        checkpoint_folder=(job.checkpoint.path or "") if job.checkpoint is not None else "",
        cluster_arguments=job.cluster_arguments,
        procs_per_task=int(job.procs_per_task or 1),
    )
    return JobSpec(job, workload)


def _program_of(job: TrainJob, *, add_arguments: bool) -> Program:
    arguments = tuple(job.arguments())
    has_flag = any(argument.partition("=")[0] in _OUTPUT_PATH_FLAGS for argument in arguments)
    locations = {
        variable: getattr(job, name) for variable, name in _LOCATIONS.items() if getattr(job, name)
    }
    return Program(
        module=job.module_name,
        source=job.trainer_uri,
        arguments=arguments,
        variables=locations | (job.environment or {}),
        framework=job.framework,
        framework_version=job.framework_version,
        requirements=tuple(job.requirements or ()),
        output_path=job.output_path or "" if add_arguments and not has_flag else "",
        paths_for_uris=job.rewrite_uris,
    )


def _seconds(duration: str | int | None) -> int | None:
    return common.duration_seconds(str(duration)) if duration is not None else None


def _exact_seconds(duration: str | int | None) -> float | None:
    return float(common.duration_seconds(str(duration))) if duration is not None else None


def _checkpoints_to_keep(job: TrainJob, *, in_array: bool) -> int | None:
    if job.checkpoint is None or job.checkpoint.keep is None:
        return None
    keep = int(job.checkpoint.keep)
    if in_array:
        allowed = "leave it out; each task of an array has a folder of its own"
        raise common.refuse("checkpoint.keep", keep, allowed)
    return keep


def resources_of(cpu: str | float | None, memory: str | None, gpus: int | str | None) -> Resources:
    """Limits of the wire, as numbers."""
    return Resources(
        cpu_millis=common.cpu_millis(str(cpu)) if cpu else None,
        memory_bytes=common.memory_bytes(memory) if memory else None,
        gpus=int(gpus or 0),
    )


def upgrade_document(document: Any) -> Any:
    """A stored spec in today's form. Version 0.1 kept the fields of the workload beside
    ``submitted``.

    What is no spec of either form stays as it is: whoever decodes it says what is missing.
    """
    if not isinstance(document, Mapping) or "workload" in document or "submitted" not in document:
        return document
    job = codec.decode(TrainJob, document["submitted"], ignore_unknown=True)
    spec = from_wire(job, add_arguments=bool(document.get("may_add_arguments")))
    kept = {name: document[name] for name in _WORKLOAD_FIELDS if name in document}
    return {"submitted": document["submitted"], "workload": {**codec.encode(spec.workload), **kept}}

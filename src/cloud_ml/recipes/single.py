"""The recipe of jobs with one process, in any framework: ``python -m module arguments``."""

from __future__ import annotations

from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.services.spec import SERVICE_LABEL
from cloud_ml.engines.base import EnvironmentPlan, Gang, Places, ProcessPlan
from cloud_ml.recipes import paths
from cloud_ml.recipes.base import PlanContext, Recipe

_OUTPUT_PATH_FLAGS = ("--output_path", "--output-path", "-output_path")


class SingleProcess(Recipe):
    """One process, no peers."""

    name = "single"

    def check(self, spec: JobSpec) -> None:
        """Any spec of one role and one replica will do."""

    def plan(self, spec: JobSpec, context: PlanContext) -> Gang:
        job, role = spec.submitted, spec.roles[0]
        process = ProcessPlan(
            role=role.name,
            index=0,
            command=("python", "-m", job.module_name, *_arguments(spec, context.places)),
            environment=_variables(spec, context),
            cpu_millis=role.resources.cpu_millis,
            memory_bytes=role.resources.memory_bytes,
            cpu_request_millis=role.resources.cpu_request_millis,
            output_path=_output_path(spec, context.places),
        )
        return Gang(
            key=context.key,
            tenant=context.tenant,
            processes=(process,),
            environment=EnvironmentPlan(
                context.trainer,
                job.framework,
                job.framework_version,
                job.module_name,
                tuple(job.requirements or ()),
            ),
            mounts=context.mounts,
            prepare_command=job.prepare_command or None,
            finish_command=job.finish_command or None,
            serves=SERVICE_LABEL in (job.labels or {}),
            wall_time_s=spec.wall_time_s,
            disk_bytes=spec.disk_bytes,
            grace_s=spec.grace_s,
            network=context.network,
            labels={"job": context.job_name, "org": context.org},
        )


def _arguments(spec: JobSpec, places: Places) -> tuple[str, ...]:
    return paths.rewrite_all(spec.arguments, places) if spec.submitted.rewrite_uris else spec.arguments


def _output_path(spec: JobSpec, places: Places) -> str:
    """What to pass with the flag ``--output_path``; nothing where the user's arguments have the flag."""
    job = spec.submitted
    if not spec.may_add_arguments or not job.output_path:
        return ""
    if any(argument.partition("=")[0] in _OUTPUT_PATH_FLAGS for argument in spec.arguments):
        return ""
    return paths.rewrite(job.output_path, places) if job.rewrite_uris else job.output_path


def _variables(spec: JobSpec, context: PlanContext) -> dict[str, str]:
    """What the platform tells the code, then what the user set, with URIs as paths."""
    job = spec.submitted
    told = {
        "CLOUDML_JOB_NAME": context.job_name,
        "CLOUDML_JOB_ID": context.key.job_uid,
        "CLOUDML_ATTEMPT": str(context.key.attempt),
        "CLOUDML_STORAGE": context.places.storage,
        "CLOUDML_OUTPUT_PATH": job.output_path or "",
        "CLOUDML_MODEL_EXPORT_PATH": job.model_export_path or "",
        "CLOUDML_MODEL_INPUT_PATH": job.model_input_path or "",
        "CLOUDML_DATA_INPUT_PATH": job.data_input_path or "",
        "CLOUDML_DATA_OUTPUT_PATH": job.data_output_path or "",
        "CLOUDML_TENSORBOARD_LOGDIR": job.tensorboard_logdir or "",
    }
    variables = {name: value for name, value in told.items() if value} | (job.environment or {})
    return paths.rewrite_values(variables, context.places) if job.rewrite_uris else variables

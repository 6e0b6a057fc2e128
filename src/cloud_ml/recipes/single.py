"""The recipe of workloads with one process, in any framework: ``python -m module arguments``."""

from __future__ import annotations

from cloud_ml.domain.workloads.spec import Program, WorkloadSpec
from cloud_ml.engines.base import EnvironmentPlan, Gang, JobPaths, ProcessPlan
from cloud_ml.recipes import paths
from cloud_ml.recipes.base import PlanContext, Recipe


class SingleProcess(Recipe):
    """One process, no peers."""

    name = "single"

    def check(self, spec: WorkloadSpec) -> None:
        """Any spec of one role and one replica will do."""

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        program, role = spec.program, spec.roles[0]
        process = ProcessPlan(
            role=role.name,
            index=0,
            command=("python", "-m", program.module, *_arguments(program, context.places)),
            environment=_variables(program, context),
            cpu_millis=role.resources.cpu_millis,
            memory_bytes=role.resources.memory_bytes,
            cpu_request_millis=role.resources.cpu_request_millis,
            output_path=_output_path(program, context.places),
        )
        return Gang(
            key=context.key,
            tenant=context.tenant,
            processes=(process,),
            environment=EnvironmentPlan(
                context.trainer,
                program.framework,
                program.framework_version,
                program.module,
                program.requirements,
            ),
            mounts=context.mounts,
            prepare_command=spec.prepare_command,
            finish_command=spec.finish_command,
            serves=spec.serves,
            wall_time_s=spec.wall_time_s,
            disk_bytes=spec.disk_bytes,
            grace_s=spec.grace_s,
            network=context.network,
            labels={"job": context.job_name, "org": context.org},
        )


def _arguments(program: Program, places: JobPaths) -> tuple[str, ...]:
    return (
        paths.rewrite_all(program.arguments, places)
        if program.paths_for_uris
        else program.arguments
    )


def _output_path(program: Program, places: JobPaths) -> str:
    return (
        paths.rewrite(program.output_path, places)
        if program.paths_for_uris
        else program.output_path
    )


def _variables(program: Program, context: PlanContext) -> dict[str, str]:
    """What the platform tells the code, then what the user set, with URIs as paths."""
    told = {
        "CLOUDML_JOB_NAME": context.job_name,
        "CLOUDML_JOB_ID": context.key.job_uid,
        "CLOUDML_ATTEMPT": str(context.key.attempt),
        "CLOUDML_STORAGE": context.places.storage,
    }
    variables = {name: value for name, value in told.items() if value} | dict(program.variables)
    return paths.rewrite_values(variables, context.places) if program.paths_for_uris else variables

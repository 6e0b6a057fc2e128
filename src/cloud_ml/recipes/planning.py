"""What all recipes have in common: one process for each task, with the job's program."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.workloads.exits import ExitAction
from cloud_ml.domain.workloads.gangs import EVALUATOR, NO_RESTARTS, TaskRestarts
from cloud_ml.domain.workloads.seeds import SEED_VARIABLE, seed_of
from cloud_ml.domain.workloads.spec import Program, Role, WorkloadSpec
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import EnvironmentPlan, Gang, ProcessPlan
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import parameter_file
from cloud_ml.recipes import paths
from cloud_ml.recipes.base import PlanContext

CHIEFS = ("chief", "master")
"""Roles whose first task leads the others."""
PARAMETER_SERVER, WORKER = "ps", "worker"
_UNKNOWN: Mapping[str, str] = {}
TASK_RETRIES = 10
"""By default, where the framework can go on."""


@dataclass(frozen=True)
class Task:
    """A task of a gang of several, and where others reach it.

    ``rank`` counts all tasks. ``ip`` is the address that ``host`` stands for, if it is known. Others
    reach it at the first of its ``ports``.
    """

    role: str
    index: int
    rank: int
    host: str
    ports: tuple[int, ...]
    ip: str = ""

    @property
    def name(self) -> str:
        """Such as ``worker-1``."""
        return f"{self.role}-{self.index}"

    @property
    def port(self) -> int:
        """Where others reach it."""
        return self.ports[0]

    @property
    def address(self) -> str:
        """Such as ``worker-1:20003``."""
        return f"{self.host}:{self.port}"


def tasks_of(
    spec: WorkloadSpec,
    ports: Sequence[int],
    hosts: Mapping[str, str],
    addresses: Mapping[str, str] = _UNKNOWN,
) -> tuple[Task, ...]:
    """The tasks in the order of their ranks, the chief first.

    Args:
        spec: Has the roles.
        ports: Those of all tasks, in their order.
        hosts: Where each task is reached, by its name.
        addresses: The IP addresses that these stand for, as far as they are known.
    """
    named = [(role, index) for role in spec.roles for index in range(role.replicas)]
    left = iter(ports)
    return tuple(
        Task(
            role.name,
            index,
            rank,
            hosts[f"{role.name}-{index}"],
            tuple(itertools.islice(left, role.ports)),
            addresses.get(f"{role.name}-{index}", ""),
        )
        for rank, (role, index) in enumerate(named)
    )


def addresses(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """The addresses of the tasks of each role but the evaluator, by their index."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        if task.role != EVALUATOR:
            found.setdefault(task.role, []).append(task.address)
    return found


def chief_of(tasks: Sequence[Task]) -> Task | None:
    """The first task of a role that leads the others."""
    return next((task for task in tasks if task.role in CHIEFS), None)


def workers_of(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks that train together: all but parameter servers and evaluators, which come last.

    If there are no others, it is all of them.
    """
    aside = (EVALUATOR, PARAMETER_SERVER)
    return tuple(task for task in tasks if task.role not in aside) or tuple(tasks)


def those_that_end(tasks: Sequence[Task]) -> tuple[str, ...]:
    """The tasks that end by themselves: all but parameter servers and evaluators."""
    endless = (EVALUATOR, PARAMETER_SERVER)
    return tuple(task.name for task in tasks if task.role not in endless)


def check_no_servers(recipe: str, spec: WorkloadSpec) -> None:
    """Refuse parameter servers, which the recipe of this name does not know.

    Raises:
        InvalidRequest: There are some.
    """
    servers = sum(role.replicas for role in spec.roles if role.name == PARAMETER_SERVER)
    if servers:
        raise InvalidRequest(
            f"the job asks for parameter servers, but recipe {recipe} knows none",
            field="ps_count",
            value=servers,
            allowed="leave it out",
            hint="with recipe cluster, any roles may be used",
        )


def check_roles(recipe: str, spec: WorkloadSpec, singles: Sequence[str]) -> None:
    """Refuse roles that a recipe with roles of its own does not know: it has workers, and one task
    of each of the ``singles``.

    Raises:
        InvalidRequest: Names field, value and what is allowed.
    """
    check_no_servers(recipe, spec)
    counts = {role.name: role.replicas for role in spec.roles}
    if WORKER not in counts:
        raise InvalidRequest(
            f"worker_count is missing, and recipe {recipe} has workers",
            field="worker_count",
            value=0,
            allowed="1 or more",
            hint="say how many with -w N (worker_count)",
        )
    for name, count in counts.items():
        if name not in (WORKER, *singles):
            raise InvalidRequest(
                f"cluster_spec: {name!r} is no role of recipe {recipe}",
                field="cluster_spec",
                value=name,
                allowed=f"{WORKER}; at most one {' and one '.join(singles)}",
                hint="with recipe cluster, any roles may be used",
            )
        if name in singles and count != 1:
            raise InvalidRequest(
                f"cluster_spec.{name}.count is {count}, and recipe {recipe} has one {name}",
                field=f"cluster_spec.{name}.count",
                value=count,
                allowed="1",
            )


def restarts_of(spec: WorkloadSpec, tasks: Sequence[Task], able: Sequence[str]) -> TaskRestarts:
    """The tasks that start again alone.

    Args:
        spec: Says how often, if the user has said it: then it holds for every task. Its rules of
            exits may name further tasks.
        tasks: All of them.
        able: The names of those from whose end the framework can go on.
    """
    task_retries, exits, healthy_s = spec.retry.task_retries, spec.retry.exits, spec.retry.healthy_s
    if task_retries is not None:
        names = tuple(task.name for task in tasks)
        return TaskRestarts(names, task_retries, exits, healthy_s) if task_retries else NO_RESTARTS
    ruled = any(rule.action is ExitAction.RESTART_TASK for rule in exits.rules)
    if not able and not ruled:
        return NO_RESTARTS
    return TaskRestarts(tuple(able), TASK_RETRIES, exits, healthy_s)


def cluster_variables(tasks: Sequence[Task], task: Task) -> dict[str, str]:
    """What every task of a gang of several finds, whatever its framework is."""
    return {
        "CLOUDML_ROLE": task.role,
        "CLOUDML_INDEX": str(task.index),
        "CLOUDML_CLUSTER": json.dumps(addresses(tasks)),
        "CLOUDML_PORT": str(task.port),
        "CLOUDML_TASK_RESTART": "0",
    }


def cluster_arguments(tasks: Sequence[Task], task: Task) -> tuple[str, ...]:
    """The cluster as scripts of TensorFlow 1 read it from their command line.

    A role that the job does not have gets no flag: flags that a script does not define end it.
    """
    hosts = (f"--{role}_hosts={','.join(found)}" for role, found in addresses(tasks).items())
    return (*hosts, f"--job_name={task.role}", f"--task_index={task.index}")


def plan_process(
    spec: WorkloadSpec,
    context: PlanContext,
    role: Role,
    index: int,
    *,
    variables: Mapping[str, str] | None = None,
    cluster: tuple[str, ...] = (),
    ports: tuple[int, ...] = (),
) -> ProcessPlan:
    """The process of one task: ``python -m module arguments``.

    ``variables`` and the arguments ``cluster`` are the recipe's; those that the user sets win.
    """
    program = spec.program
    arguments = (*cluster, *program.arguments, *role.arguments)
    return ProcessPlan(
        role=role.name,
        index=index,
        command=(
            "python",
            "-m",
            program.module,
            *_arguments(program, arguments, context.places),
        ),
        environment=_variables(spec, context, variables or {}),
        cpu_millis=role.resources.cpu_millis,
        memory_bytes=role.resources.memory_bytes,
        cpu_request_millis=role.resources.cpu_request_millis,
        output_path=_output_path(program, context.places),
        ports=ports,
    )


def plan_gang(spec: WorkloadSpec, context: PlanContext, processes: Sequence[ProcessPlan]) -> Gang:
    """The gang of an attempt with these processes."""
    program = spec.program
    return Gang(
        key=context.key,
        tenant=context.tenant,
        processes=tuple(processes),
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
        hang_s=spec.hang_timeout_s,
        network=context.network,
        labels={"job": context.job_name, "org": context.org},
        makes=context.checkpoints,
        log_texts=spec.retry.exits.log_texts,
        log_patterns=spec.retry.exits.log_patterns,
    )


def plan_tasks(
    spec: WorkloadSpec,
    context: PlanContext,
    tasks: Sequence[Task],
    environments: Mapping[str, Mapping[str, str]],
) -> Gang:
    """The gang of several tasks, with the variables of its recipe for each task by its name."""
    roles = {role.name: role for role in spec.roles}
    return plan_gang(
        spec,
        context,
        [
            plan_process(
                spec,
                context,
                roles[task.role],
                task.index,
                variables=cluster_variables(tasks, task) | dict(environments.get(task.name, {})),
                cluster=cluster_arguments(tasks, task) if spec.cluster_arguments else (),
                ports=task.ports,
            )
            for task in tasks
        ],
    )


def _arguments(program: Program, arguments: tuple[str, ...], places: JobPaths) -> tuple[str, ...]:
    return paths.rewrite_all(arguments, places) if program.paths_for_uris else arguments


def _output_path(program: Program, places: JobPaths) -> str:
    return (
        paths.rewrite(program.output_path, places)
        if program.paths_for_uris
        else program.output_path
    )


def _variables(spec: WorkloadSpec, context: PlanContext, own: Mapping[str, str]) -> dict[str, str]:
    """What the platform tells the code, then what the user set, with URIs as paths."""
    program = spec.program
    defaults = {
        "CLOUDML_JOB_NAME": context.job_name,
        "CLOUDML_JOB_ID": context.key.job_uid,
        "CLOUDML_ATTEMPT": str(context.key.attempt),
        SEED_VARIABLE: seed_of(context.key.job_uid, program.variables),
        "CLOUDML_STORAGE": context.places.storage,
        "CLOUDML_CHECKPOINT_DIR": context.checkpoints,
        "CLOUDML_RESTORE_FROM": context.restore_from or spec.restore_from,
        # One that hangs is ended by SIGABRT: this has it say where.
        "PYTHONFAULTHANDLER": "1" if spec.hang_timeout_s else "",
    }
    variables = (
        {name: value for name, value in defaults.items() if value}
        | dict(own)
        | dict(program.variables)
    )
    if not program.paths_for_uris:
        return variables
    rewritten = paths.rewrite_values(variables, context.places)
    parameters = parameter_file.decode_parameters(variables.get(parameter_file.VARIABLE, ""))
    texts = {name: value for name, value in (parameters or {}).items() if isinstance(value, str)}
    with_paths = paths.rewrite_values(texts, context.places)
    if with_paths != texts:
        changed = {**(parameters or {}), **with_paths}
        rewritten[parameter_file.VARIABLE] = parameter_file.encode_parameters(changed)
    return rewritten

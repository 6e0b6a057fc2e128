"""Which tasks a train job has, and which recipe runs them. Pure.

A job says its roles in one of three ways: counts (``ps_count``, ``worker_count``), a specification
of a role (``worker_spec``), or all of them together (``cluster_spec``). Without any, it is one
process. An ``array`` is one role of tasks that know no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.jobs.elastic import check_count, elastic_roles
from cloud_ml.domain.workloads.spec import ARRAY, SINGLE, Resources, Role
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.jobs.elastic import TaskRange
from cloud_ml.models.jobs.recipes import check_recipe
from cloud_ml.models.jobs.task_arrays import ALLOWED, TaskArray, task_array
from cloud_ml.models.jobs.train_job import RoleSpec, TrainJob

CLUSTER, DETECTED = "cluster", "detected"
"""Recipes without a framework. ``DETECTED`` waits until the code was looked at."""
TENSORFLOW, PYTORCH, JAX = "tensorflow", "pytorch", "jax"
XGBOOST, LIGHTGBM = "xgboost", "lightgbm"
DASK, MPI = "dask", "mpi"
_OF_FRAMEWORK: Mapping[str, str] = {
    "tensorflow": TENSORFLOW,
    "tf": TENSORFLOW,
    "pytorch": PYTORCH,
    "torch": PYTORCH,
    "jax": JAX,
    "keras": DETECTED,
    "lightgbm": LIGHTGBM,
    "xgboost": XGBOOST,
}
"""Framework → recipe. That of Keras is the recipe of its backend."""
_ADDED: Mapping[str, Sequence[str]] = {DASK: ("client", "scheduler"), MPI: ("launcher",)}
"""Recipe → roles of one task that a job has without asking."""
_PORTS: Mapping[str, Mapping[str, int]] = {
    DASK: {"scheduler": 2, "worker": 2},
    MPI: {"launcher": 3, "worker": 4},
}
"""Recipe → roles whose tasks need more than one port."""
_WITHOUT_CLUSTER_ARGUMENTS = (SINGLE, ARRAY, DASK, MPI)
_CHIEFS = ("master", "chief")
_LAST = ("ps", "evaluator")
_TASK = "task"
"""The role of the tasks of an array."""
_OF_ROLES = (
    "ps_count",
    "worker_count",
    "elastic",
    "cluster_spec",
    "master_spec",
    "worker_spec",
    "ps_spec",
)
"""Fields of jobs whose tasks find each other."""


def recipe_of(job: TrainJob) -> str:
    """The recipe that fits what the job names; ``single`` for a job of one process.

    Raises:
        InvalidRequest: There is no such recipe, or none for the job's framework.
    """
    if job.recipe:
        check_recipe("recipe", job.recipe)
        _check_array_recipe(job)
        return job.recipe
    if job.array:
        return ARRAY
    if not has_roles(job):
        if job.task_retries:
            raise common.refuse(
                "task_retries", job.task_retries, "max_retries for a job of one task"
            )
        return SINGLE
    if not job.framework:
        return DETECTED
    if (found := _OF_FRAMEWORK.get(job.framework)) is None:
        raise InvalidRequest(
            f"framework is {job.framework}, for which there is no distributed recipe",
            field="framework",
            value=job.framework,
            allowed="one of " + ", ".join(sorted(_OF_FRAMEWORK)) + ", or a recipe",
            hint=f"with recipe {CLUSTER} (--recipe {CLUSTER}), every task gets the names and ports "
            "of all tasks, and nothing else is arranged; tasks that need not find each other are "
            "an array (--array)",
        )
    return found


def check_cluster_arguments(job: TrainJob, recipe: str) -> None:
    """Refuse arguments that describe the cluster where a task has no peers, or where the recipe
    starts a program of its own.

    Raises:
        InvalidRequest: The recipe passes none.
    """
    if job.cluster_arguments and recipe in _WITHOUT_CLUSTER_ARGUMENTS:
        raise InvalidRequest(
            f"cluster_arguments is true, but {_describe_recipe(recipe)} passes no such arguments",
            field="cluster_arguments",
            value=True,
            allowed="leave it out",
            hint="it is for jobs of several roles, such as -p 1 -w 2",
        )


def check_procs_per_task(job: TrainJob, recipe: str) -> None:
    """Refuse processes within a task where nothing would start them.

    Raises:
        InvalidRequest: The recipe is not that of PyTorch.
    """
    if job.procs_per_task and recipe != PYTORCH:
        raise InvalidRequest(
            f"procs_per_task is {job.procs_per_task}, but {_describe_recipe(recipe)} has one process a task",
            field="procs_per_task",
            value=job.procs_per_task,
            allowed=f"leave it out, or say recipe {PYTORCH} (-F {PYTORCH}) and how many tasks (-w N)",
        )


def _describe_recipe(recipe: str) -> str:
    """A recipe as its user knows it, who never said ``single``."""
    if recipe == DETECTED:
        return "a job that names no recipe"
    return "a job of one task" if recipe == SINGLE else f"recipe {recipe}"


def has_roles(job: TrainJob) -> bool:
    """Whether the job asks for tasks of several roles, or for several tasks of one."""
    counts = job.ps_count or job.worker_count or job.elastic
    return bool(counts or job.cluster_spec or job.worker_spec or job.ps_spec)


def roles_of(job: TrainJob, recipe: str, limits: Resources) -> tuple[Role, ...]:
    """The roles of a job, the chief's first.

    Args:
        job: The wire form.
        recipe: The name of its recipe.
        limits: Those of the job itself, which a task has where its role names none.

    Raises:
        InvalidRequest: A field contradicts another.
    """
    if (array := array_of(job)) is not None:
        return (Role(_TASK, len(array.indices), limits, indices=array.indices),)
    if not has_roles(job):
        _check_lone_master(job.master_spec)
        return (Role("master", resources=limits),)
    if job.cluster_spec:
        _check_alone(job)
        role_specs: dict[str, RoleSpec] = dict(job.cluster_spec)
    else:
        # On the original wire, TensorFlow has a master beside so many workers; so has a job that
        # does not say what it is.
        is_default = recipe == DETECTED and not job.framework
        role_specs = _build_roles(job, with_master=recipe == TENSORFLOW or is_default)
    role_specs = {
        name: role_specs.get(name, RoleSpec()) for name in _ADDED.get(recipe, ())
    } | role_specs
    order = {name: rank for rank, name in enumerate((*_CHIEFS, *_others(role_specs), *_LAST))}
    elastic = _elastic_among(job, role_specs)
    ports = _PORTS.get(recipe, {})
    roles = (
        _role(name, role_specs[name], limits, ports.get(name, 1))
        for name in sorted(role_specs, key=order.__getitem__)
    )
    return tuple(_with_range(role, elastic.get(role.name)) for role in roles)


def _with_range(role: Role, tasks: TaskRange | None) -> Role:
    return role if tasks is None else replace(role, replicas=tasks.most, least=tasks.least)


def _elastic_among(job: TrainJob, role_specs: Mapping[str, RoleSpec]) -> Mapping[str, TaskRange]:
    """The elastic roles of a job, all of which it has."""
    elastic = elastic_roles(job)
    if unknown := next((name for name in elastic if name not in role_specs), None):
        names = ", ".join(role_specs) or "worker"
        raise InvalidRequest(
            f"elastic.{unknown} names no role of the job",
            field=f"elastic.{unknown}",
            value=str(elastic[unknown]),
            allowed=f"one of {names}",
        )
    for name, tasks in elastic.items():
        named = (
            role_specs[name].count
            if role_specs[name].count is not None
            else role_specs[name].replica_count
        )
        check_count(name, tasks, named, _count_field(job, name))
    return elastic


def _count_field(job: TrainJob, role: str) -> str:
    """The field in which a job names the number of tasks of a role."""
    if job.cluster_spec:
        return f"cluster_spec.{role}.count"
    counted = isinstance(getattr(job, f"{role}_count"), int)
    return f"{role}_count" if counted else f"{role}_spec.count"


def array_of(job: TrainJob) -> TaskArray | None:
    """The tasks of an array job; ``None`` for any other.

    Raises:
        InvalidRequest: A field contradicts another.
    """
    if not job.array:
        if job.max_failed:
            raise common.refuse("max_failed", job.max_failed, "0 for a job without array")
        return None
    for name in _OF_ROLES:
        if value := getattr(job, name):
            raise InvalidRequest(
                f"array and {name} are both set",
                field=name,
                value=value if isinstance(value, (int, str)) else None,
                allowed="leave it out; tasks of an array know no other",
            )
    return task_array("array", job.array)


def _check_array_recipe(job: TrainJob) -> None:
    if job.recipe == ARRAY and not job.array:
        raise InvalidRequest(
            f"recipe is {ARRAY}, and array is not set", field="array", allowed=ALLOWED
        )
    if job.array and job.recipe != ARRAY:
        allowed = f"{ARRAY}, or leave it out; tasks of an array know no other"
        raise common.refuse("recipe", job.recipe, allowed)


def _others(names: Mapping[str, RoleSpec]) -> Sequence[str]:
    return [name for name in names if name not in (*_CHIEFS, *_LAST)]


def _build_roles(job: TrainJob, *, with_master: bool) -> dict[str, RoleSpec]:
    """The roles of a job that names counts or the specifications of single roles."""
    role_specs: dict[str, RoleSpec] = {}
    if with_master or job.master_spec is not None:
        role_specs["master"] = _set_count("master", 1, job.master_spec)
    if job.worker_count or job.worker_spec is not None:
        count = None if isinstance(job.worker_count, str) else job.worker_count
        role_specs["worker"] = _set_count("worker", count, job.worker_spec)
    elif "worker" in elastic_roles(job):
        role_specs["worker"] = RoleSpec()
    if job.ps_count or job.ps_spec is not None:
        role_specs["ps"] = _set_count("ps", job.ps_count, job.ps_spec)
    return role_specs


def _set_count(role: str, count: int | str | None, spec: RoleSpec | None) -> RoleSpec:
    if spec is None:
        return RoleSpec(count=count)
    named = spec.count if spec.count is not None else spec.replica_count
    if role == "master" and named not in (None, 1):
        raise common.refuse("master_spec.replica_count", named, "1")
    if count is not None and named not in (None, count):
        raise InvalidRequest(
            f"{role}_count is {count} and {role}_spec asks for {named}",
            field=f"{role}_count",
            value=count,
            allowed=f"the count of {role}_spec, or leave it out",
        )
    return replace(spec, count=named if named is not None else count, replica_count=None)


def _role(name: str, spec: RoleSpec, limits: Resources, ports: int) -> Role:
    own = Resources(
        cpu_millis=common.cpu_millis(str(spec.cpu_limit)) if spec.cpu_limit else limits.cpu_millis,
        memory_bytes=common.memory_bytes(spec.memory_limit)
        if spec.memory_limit
        else limits.memory_bytes,
        gpus=limits.gpus if spec.gpu_limit is None else int(spec.gpu_limit),
    )
    arguments = tuple(common.arguments(spec.task_args))
    return Role(name, spec.replicas, own, arguments, ports=ports)


def _check_alone(job: TrainJob) -> None:
    """``cluster_spec`` says all of it: no other field may say a part."""
    for name in ("ps_count", "worker_count", "master_spec", "worker_spec", "ps_spec"):
        if getattr(job, name):
            value = getattr(job, name)
            raise InvalidRequest(
                f"cluster_spec and {name} are both set",
                field=name,
                value=None if isinstance(value, RoleSpec) else value,
                allowed="leave it out; cluster_spec has all roles",
            )


def _check_lone_master(master: RoleSpec | None) -> None:
    """``master_spec = {"replica_count": 1}`` is how early clients said: one task."""
    if master is None:
        return
    if master.replicas != 1:
        raise common.refuse("master_spec.replica_count", master.replicas, "1")
    for field in ("cpu_limit", "memory_limit", "gpu_limit", "gpu_type", "task_args"):
        if value := getattr(master, field):
            raise InvalidRequest(
                f"master_spec.{field} is set, but the job has one task only",
                field=f"master_spec.{field}",
                value=value,
                allowed=f"{field} of the job itself",
            )

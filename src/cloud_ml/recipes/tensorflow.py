"""The recipe of TensorFlow: ``TF_CONFIG``, as ``tf.distribute`` and ``tf.estimator`` read it.

Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cloud_ml.domain.workloads.gangs import EVALUATOR, TaskRestarts
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Variant
from cloud_ml.errors import InvalidRequest
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import PARAMETER_SERVER, Task, addresses, chief_of, those_that_end
from cloud_ml.recipes.variants import VariantRecipe

FRAMEWORK = "tensorflow"
_MASTER, _CHIEF = "master", "chief"
_CHIEFS = (_MASTER, _CHIEF)
_TRAINING = (*_CHIEFS, "worker")
_ROLES = (*_TRAINING, PARAMETER_SERVER, EVALUATOR)
_AS_NAMED: Mapping[str, str] = {}


class TensorFlow(VariantRecipe):
    """Parameter servers and workers, or workers alone, for TensorFlow 1 and 2."""

    name = "tensorflow"

    def check(self, spec: WorkloadSpec) -> None:
        """Refuse roles that no code of TensorFlow knows, and jobs in which nobody trains."""
        super().check(spec)
        for role in spec.roles:
            if role.name not in _ROLES:
                raise _refuse_roles(f"{role.name!r} is no role of TensorFlow", role.name)
        chiefs = [role.name for role in spec.roles if role.name in _CHIEFS]
        if sum(role.replicas for role in spec.roles if role.name in _CHIEFS) > 1:
            raise _refuse_roles(f"TensorFlow has one {' or '.join(chiefs)}", chiefs[0])
        if not any(role.name in _TRAINING for role in spec.roles):
            names = ", ".join(role.name for role in spec.roles)
            raise _refuse_roles(f"the job has no task that trains, only {names}", names)

    def keeps_ports(self, runtime: str) -> bool:
        """The servers of gRPC set SO_REUSEADDR."""
        return True

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        return (variant(tasks, FRAMEWORK, "1"), variant(tasks))


def _refuse_roles(why: str, value: str) -> InvalidRequest:
    return InvalidRequest(
        f"cluster_spec: {why}",
        field="cluster_spec",
        value=value,
        allowed=f"at most one {_MASTER} or {_CHIEF}; worker, {PARAMETER_SERVER}, {EVALUATOR}",
        hint="with recipe cluster, any roles may be used",
    )


def variant(tasks: Sequence[Task], framework: str = "", version: str = "") -> Variant:
    """The variables of each task, for version 1 of TensorFlow or a later one.

    TensorFlow 2 refuses a cluster with a ``master`` and calls it ``chief``. The task keeps its
    name.
    """
    roles = _AS_NAMED if version == "1" else {_MASTER: _CHIEF}
    return Variant(
        framework,
        version,
        {task.name: _environment(tasks, task, roles) for task in tasks},
        _completes(tasks, version),
        TaskRestarts(_able(tasks, version)),
    )


def tf_config(tasks: Sequence[Task], task: Task, roles: Mapping[str, str] = _AS_NAMED) -> str:
    """What ``TF_CONFIG`` says to a task; ``roles`` has other words for roles."""
    cluster = {roles.get(role, role): found for role, found in addresses(tasks).items()}
    own = {"type": roles.get(task.role, task.role), "index": task.index}
    return json.dumps({"cluster": cluster, "task": own})


def _environment(tasks: Sequence[Task], task: Task, roles: Mapping[str, str]) -> dict[str, str]:
    variables = {"TF_CONFIG": tf_config(tasks, task, roles)}
    has_servers = any(one.role == PARAMETER_SERVER for one in tasks)
    if has_servers and _CHIEF in roles.values():
        # Otherwise a call to a server that is not up yet fails at once.
        variables["GRPC_FAIL_FAST"] = "use_caller"
    return variables


def _able(tasks: Sequence[Task], version: str) -> tuple[str, ...]:
    """The tasks from whose end the others can go on.

    Monitored sessions of TensorFlow 1 wait for any task. The coordinator of TensorFlow 2 gives the
    work of a lost worker to another, and cannot go on without a server. Equal workers stand or fall
    together.
    """
    if version == "1":
        return tuple(task.name for task in tasks)
    if not any(task.role == PARAMETER_SERVER for task in tasks):
        return ()
    return tuple(task.name for task in tasks if task.role == "worker")


def _completes(tasks: Sequence[Task], version: str) -> tuple[str, ...]:
    """With parameter servers, or in TensorFlow 1, the chief decides. Equal workers all end."""
    has_servers = any(task.role == PARAMETER_SERVER for task in tasks)
    if not has_servers and version != "1":
        return those_that_end(tasks)
    chief = chief_of(tasks) or next(
        (task for task in tasks if task.role not in (PARAMETER_SERVER, EVALUATOR)), tasks[0]
    )
    return (chief.name,)

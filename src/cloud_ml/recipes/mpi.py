"""The recipe of MPI: a launcher that becomes ``mpiexec``, and workers that it starts processes in.

``mpiexec`` reaches the workers without SSH: ``cloud_ml_mpi``, which is importable in every job,
hands its command to them. Open MPI is told its ports by variables of each task, and the network
interface, since several of them confuse it.

Source: https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html and the parameters that
``prte_info --all`` and ``ompi_info --all`` list
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.workloads.exits import ExitAction
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang, ProcessPlan
from cloud_ml.errors import InvalidRequest
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import WORKER, Task, check_roles, plan_tasks, restarts_of, tasks_of

_LAUNCHER = "launcher"
_HELPER = "cloud_ml_mpi"
_PACKAGES = ("openmpi>=5", "mpi4py")


class Mpi(Recipe):
    """Complete when the launcher has ended. All tasks stand or fall together.

    Open MPI waits in busy loops, also with ``mpi_yield_when_idle``.
    """

    name = "mpi"

    def check(self, spec: WorkloadSpec) -> None:
        """One launcher, and workers."""
        check_roles(self.name, spec, (_LAUNCHER,))
        retry = spec.retry
        ruled = any(rule.action is ExitAction.RESTART_TASK for rule in retry.exits.rules)
        if retry.task_retries or ruled:
            field = "task_retries" if retry.task_retries else "restart.rules"
            value = retry.task_retries or ExitAction.RESTART_TASK.value
            raise InvalidRequest(
                f"{field} is {value}, but with recipe mpi no task starts again alone",
                field=field,
                value=value,
                allowed="0" if retry.task_retries else "restart-gang, fail, free",
                hint="--retries N (max_retries) starts all tasks again",
            )

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        tasks = tasks_of(spec, context.ports, context.places.hosts)
        variables = {task.name: _variables(tasks, task, context.places.interface) for task in tasks}
        gang = plan_tasks(spec, context, tasks, variables)
        size = sum(task.role == WORKER for task in tasks)
        environment = gang.environment
        return replace(
            gang,
            processes=tuple(_process(plan, size) for plan in gang.processes),
            environment=replace(environment, requires=(*environment.requires, *_PACKAGES)),
            completes=tuple(task.name for task in tasks if task.role == _LAUNCHER),
            restarts=restarts_of(spec, tasks, ()),
            busy_waits=True,
            launcher=next(task.name for task in tasks if task.role == _LAUNCHER),
        )


def _process(plan: ProcessPlan, size: int) -> ProcessPlan:
    """The command of the user's module goes through ``mpiexec``, from the launcher."""
    if plan.role == _LAUNCHER:
        _, *words = plan.command
        return replace(plan, command=("python", "-m", _HELPER, "launch", str(size), *words))
    return replace(plan, command=("python", "-m", _HELPER, "work"), output_path="")


def _variables(tasks: Sequence[Task], task: Task, interface: str) -> dict[str, str]:
    """Where the daemons and processes of a task listen. The first port is left to the user's code.

    The launcher's parameters for daemons hold for those of the workers, too, so it has none that
    differ. Each daemon takes one of all ports for daemons. Open MPI 5.0 cannot be told where they
    listen with IPv6, nor where the launcher's server for local processes does, on the loopback:
    the system chooses.

    Without ``pml``, Open MPI looks for networks of other kinds, and says that there are none.
    """
    daemons = ",".join(str(one.ports[1]) for one in tasks)
    variables = {
        "PRTE_MCA_oob_tcp_dynamic_ipv4_ports": daemons,
        "OMPI_MCA_btl_tcp_if_include": interface,
        "OMPI_MCA_pml": "ob1",
    }
    if task.role == WORKER:
        _, _, server, messages = (str(port) for port in task.ports)
        variables["PMIX_MCA_ptl_base_ipv4_port"] = server
        for family in ("v4", "v6"):
            variables[f"OMPI_MCA_btl_tcp_port_min_{family}"] = messages
            variables[f"OMPI_MCA_btl_tcp_port_range_{family}"] = "1"
    return variables

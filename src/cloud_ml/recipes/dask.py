"""The recipe of Dask: a scheduler, workers, and the user's module as their client.

``distributed.Client()`` reads the scheduler's address from a variable. Scheduler and workers are
Dask's own programs. Each of them has an HTTP server, which cannot be switched off, so that it needs
a second port.

Source: https://distributed.dask.org/en/stable/client.html and ``distributed/cli``
"""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang, ProcessPlan
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import (
    WORKER,
    Task,
    check_roles,
    plan_tasks,
    restarts_of,
    tasks_of,
)

_SCHEDULER, _CLIENT = "scheduler", "client"
_PACKAGE = "distributed"
_SERVERS = {
    # Scheduler and workers write some thirty lines each about good connections otherwise.
    "DASK_LOGGING__DISTRIBUTED": "warning",
    # By default they wake up 50 and 100 times a second, also when there is nothing to do.
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "100ms",
}
_IDLE_CORES = 0.03
"""Their heartbeats take up to 1 % of a core."""
_CONNECT_TIMEOUT = "120s"
"""The scheduler imports its packages at the same time as the client that waits for it."""


class Dask(Recipe):
    """Complete when the client has ended. A worker starts again alone.

    The scheduler is stopped last: a worker whose scheduler goes first may hang while it closes.
    """

    name = "dask"

    def check(self, spec: WorkloadSpec) -> None:
        """One scheduler, one client, and workers."""
        check_roles(self.name, spec, (_SCHEDULER, _CLIENT))

    def keeps_ports(self, runtime: str) -> bool:
        """The servers of Tornado set SO_REUSEADDR."""
        return True

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        tasks = tasks_of(spec, context.ports, context.places.hosts)
        (scheduler,) = (task for task in tasks if task.role == _SCHEDULER)
        address = {"DASK_SCHEDULER_ADDRESS": f"tcp://{scheduler.address}"}
        waits = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": _CONNECT_TIMEOUT}
        variables = {
            task.name: address | (waits if task.role == _CLIENT else _SERVERS) for task in tasks
        }
        gang = plan_tasks(spec, context, tasks, variables)
        arguments = {role.name: role.arguments for role in spec.roles}
        environment = gang.environment
        return replace(
            gang,
            processes=tuple(
                _process(plan, task, scheduler, arguments[task.role])
                for plan, task in zip(gang.processes, tasks, strict=True)
            ),
            environment=replace(environment, requires=(*environment.requires, _PACKAGE)),
            completes=tuple(task.name for task in tasks if task.role == _CLIENT),
            restarts=restarts_of(spec, tasks, [t.name for t in tasks if t.role == WORKER]),
            stopped_last=(scheduler.name,),
            idle_cores=_IDLE_CORES,
        )


def _process(
    plan: ProcessPlan, task: Task, scheduler: Task, arguments: tuple[str, ...]
) -> ProcessPlan:
    """The client runs the user's module; the others run Dask's own."""
    if task.role == _CLIENT:
        return plan
    own = _scheduler(task) if task.role == _SCHEDULER else _worker(plan, task, scheduler)
    return replace(plan, command=("python", "-m", *own, *arguments), output_path="")


def _scheduler(task: Task) -> tuple[str, ...]:
    listen = ("--host", task.host, "--port", str(task.port))
    return ("distributed.cli.dask_scheduler", *listen, *_http(task))


def _worker(plan: ProcessPlan, task: Task, scheduler: Task) -> tuple[str, ...]:
    """Without a nanny: the platform starts a worker again, and tells why it has ended."""
    command = [
        "distributed.cli.dask_worker",
        f"tcp://{scheduler.address}",
        *("--host", task.host, "--worker-port", str(task.port), "--name", task.name),
        *_http(task),
        "--no-nanny",
    ]
    if plan.cpu_millis:
        threads = max(1, -(-plan.cpu_millis // 1000))
        command += ["--nthreads", str(threads)]
    if plan.memory_bytes:
        command += ["--memory-limit", str(plan.memory_bytes)]
    return tuple(command)


def _http(task: Task) -> tuple[str, ...]:
    """Where its HTTP server listens, without a dashboard: nobody reaches it from outside."""
    return ("--dashboard-address", f"{task.host}:{task.ports[1]}", "--no-dashboard")

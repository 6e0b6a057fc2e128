"""Tasks of a job as jobs of their own, which is how the original wire shows them.

Task ``worker-0`` of the job ``linear`` is the member ``linear-worker-0`` of the cluster ``linear``.
Members are made by looking; nothing of them is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.workloads.phases import Phase, TaskStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.worlds import within
from cloud_ml.errors import AlreadyExists, Conflict
from cloud_ml.recipes.planning import Task, tasks_of
from cloud_ml.recipes.tensorflow import tf_config
from cloud_ml.state.base import StateStore

_LONGEST = 63
FindJob = Callable[[str], TrainJobRecord | None]


def parts_of(name: str) -> Iterator[tuple[str, str]]:
    """The pairs of a job and a task that ``name`` may be a member of, the longest job first."""
    words = name.split("-") if len(name) <= _LONGEST else []
    if not words or words[-1].strip("0123456789"):  # the last one is an index
        return
    for at in range(len(words) - 2, 0, -1):
        yield "-".join(words[:at]), "-".join(words[at:])


def members_of(record: TrainJobRecord) -> Sequence[str]:
    """The names of a job's members; none for a job of one task."""
    workload = record.spec.workload
    if not workload.has_peers:
        return ()
    return [f"{record.key.name}-{task}" for task in workload.tasks]


def find(store: StateStore, org: str, name: str) -> tuple[TrainJobRecord, str] | None:
    """The job of which ``name`` is a member, and the task; ``None`` if there is none."""
    return _find(lambda job: store.find(TRAIN_JOB, org, job), name)


def _find(find_job: FindJob, name: str) -> tuple[TrainJobRecord, str] | None:
    for job, task in parts_of(name):
        record = find_job(job)
        if record is not None and name in members_of(record):
            return record, task
    return None


def check_names(store: StateStore, org: str, spec: JobSpec) -> None:
    """Refuse a job whose name is that of another's member, or whose members' names are taken.

    Raises:
        AlreadyExists: Names the other job.
        Conflict: A member's name would be too long.
    """
    name = spec.submitted.job_name

    @cache  # the tasks of a role have the same jobs to look for
    def find_job(job: str) -> TrainJobRecord | None:
        return store.find(TRAIN_JOB, org, job) if job != name else None

    if (found := _find(find_job, name)) is not None:
        other = found[0].key.name
        raise _name_taken(name, f"it is the task {found[1]} of the job {other}", other)
    for task in spec.workload.tasks if spec.workload.has_peers else ():
        member = f"{name}-{task}"
        if len(member) > _LONGEST:
            raise Conflict(
                f"job_name is too long for a job with the task {task}: {member} has "
                f"{len(member)} characters",
                field="job_name",
                value=name,
                allowed=f"at most {_LONGEST - len(task) - 1} characters",
            )
        if store.find(TRAIN_JOB, org, member) is not None:
            raise _name_taken(
                name, f"its task {task} would have the name of the job {member}", member
            )
        if (found := _find(find_job, member)) is not None:
            other = found[0].key.name
            whose = f"the task {found[1]} of the job {other}"
            raise _name_taken(name, f"its task {task} and {whose} would both be {member}", other)


def _name_taken(name: str, why: str, other: str) -> AlreadyExists:
    return AlreadyExists(
        f"the name {name} is taken: {why}",
        same_spec=False,
        field="job_name",
        value=name,
        allowed="a name that is not in use",
        hint=f"Choose another name, or remove the job {other}: cloudml jobs delete {other}",
    )


def cluster_fields(record: TrainJobRecord, task: str | None) -> dict[str, Any]:
    """The fields of the original document that tie members to their cluster.

    ``task`` is ``None`` for the cluster itself.
    """
    if not record.spec.workload.has_peers:
        return {}
    fields: dict[str, Any] = {"cluster_name": record.key.name}
    if task is None or not record.status.ports:
        return fields
    tasks = placed_tasks(record)
    own = next((one for one in tasks if one.name == task), None)
    if own is None:  # an elastic job has less room than for this task
        return fields
    variable = f"TF_CONFIG={tf_config(tasks, own)}"
    return fields | {"service_port": own.port, "cluster_env_var": variable}


def placed_tasks(record: WorkloadRecord) -> tuple[Task, ...]:
    """The tasks of a job of several with their names as hosts, and the ports that they have got."""
    workload = within(record.spec.workload, record.status.world)
    return tasks_of(workload, record.status.ports, {name: name for name in workload.tasks})


def addresses_of(record: WorkloadRecord) -> dict[str, str]:
    """Where the tasks reach each other, such as ``worker-1:20003``, by their names."""
    if not record.spec.workload.has_peers or not record.status.ports:
        return {}
    return {task.name: task.address for task in placed_tasks(record) if task.ports}


def phase_of(record: TrainJobRecord, task: str) -> Phase:
    """The phase of a member: that of the job, until its task has ended by itself."""
    status = record.status
    found = next((one for one in status.tasks if one.name == task), None)
    if status.phase.active and task not in within(record.spec.workload, status.world).tasks:
        return Phase.QUEUED  # an elastic job has less room than for this task
    return _end_phase(found) or status.phase if found is not None else status.phase


def _end_phase(task: TaskStatus) -> Phase | None:
    if task.running or not task.reason:
        return None
    return Phase.SUCCEEDED if task.reason == Reason.COMPLETED else Phase.FAILED

"""Records as the two HTTP surfaces show them. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Event, Summary
from cloud_ml.domain.studies.spec import Goal, StudyPhase, StudyRecord
from cloud_ml.domain.workloads.outputs import StoredOutputs
from cloud_ml.domain.workloads.phases import WIRE_STATES, Phase, WorkloadStatus
from cloud_ml.domain.workloads.recovery import Recoveries
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.base import Capacity
from cloud_ml.models import codec
from cloud_ml.models.jobs.checkpoints import NewestCheckpoint
from cloud_ml.models.jobs.job import (
    Job,
    JobDetails,
    JobEvent,
    JobMemory,
    JobRecoveries,
    JobRecovery,
    JobSummary,
    JobTasks,
    JobTaskState,
    JobUsage,
)
from cloud_ml.models.jobs.outputs import JobOutputs
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.secrets.arguments import mask_words, masked_arguments
from cloud_ml.models.secrets.secret import MASK, mask_variables
from cloud_ml.models.tracking.metrics import MetricValue
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.jobs import members
from cloud_ml.usecases.masking import masked_commands, masked_parameters

LISTED_ARGUMENTS = 2000
"""Characters of a job's arguments that a list shows; `describe` has all of them."""
_SECRET = ("hdfs_krb_password", "hdfs_krb_keytab")
_DELETING = "deleting"
_ENQUEUING = "enqueuing"

_SUBMITTED = (
    "job_name",
    "module_name",
    "trainer_uri",
    "fds_endpoint",
    "fds_bucket",
    "hdfs_krb_account",
    "hdfs_endpoint",
    "cpu_limit",
    "memory_limit",
    "gpu_limit",
    "docker_image",
    "docker_command",
    "framework",
    "framework_version",
    "volume_type",
    "volume_path",
    "mount_path",
    "mount_read_only",
    "prepare_command",
    "finish_command",
)
"""Keys of the original train job document that repeat what was submitted."""

_OF_OTHERS = (
    "cluster_name",
    "service_port",
    "cluster_env_var",
    "hyperparameters_name",
    "hyperparameters_goal",
    "hyperparameters_params",
)
"""Keys that belong to jobs of several tasks and tuning: present, and empty elsewhere."""


def job(record: TrainJobRecord, checkpoint: NewestCheckpoint | None = None) -> Job:
    """A job as the modern surface answers it, with its newest checkpoint where that is known."""
    status = record.status
    usage = status.usage
    addresses = members.addresses_of(record)
    return Job(
        uid=record.key.uid,
        name=record.key.name,
        org=record.key.org,
        owner=record.owner,
        revision=record.revision,
        phase=status.phase.value,
        state=wire_state(status.phase, deleting=record.delete_requested_at is not None),
        attempt=status.attempt,
        created_at=record.created_at,
        updated_at=record.updated_at,
        reason=status.reason,
        message=status.message,
        queued_at=status.queued_at,
        starting_at=status.starting_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        signal=status.signal,
        node=status.node,
        runtime=status.runtime,
        environment_lock=status.environment_lock,
        trainer_digest=status.trainer_digest,
        deleting=record.delete_requested_at is not None,
        stages=status.stages,
        usage=JobUsage(
            cpu_seconds=usage.cpu_seconds,
            memory_bytes=usage.memory_bytes,
            memory_peak_bytes=usage.memory_peak_bytes,
            processes=usage.processes,
        ),
        outputs=_outputs(status.outputs),
        tasks=[
            JobTaskState(
                name=task.name,
                running=task.running,
                reason=task.reason,
                message=task.message,
                exit_code=task.exit_code,
                signal=task.signal,
                started_at=task.started_at,
                finished_at=task.finished_at,
                restarts=task.restarts,
                last_end=task.last_end,
                last_reason=task.last_reason,
                last_exit_code=task.last_exit_code,
                last_signal=task.last_signal,
                restarting=task.restarting,
                node=task.node,
                address=addresses.get(task.name, ""),
            )
            for task in status.tasks
        ],
        world=dict(status.world),
        retries_used=status.retries_used,
        max_retries=record.spec.workload.retry.max_retries,
        task_restarts_used=status.task_restarts_used,
        recoveries=_recoveries(status.recoveries),
        memory=[
            JobMemory(
                role=role.name,
                limit_bytes=status.memory[role.name],
                first_bytes=role.resources.memory_bytes or 0,
            )
            for role in record.spec.workload.roles
            if role.name in status.memory
        ],
        checkpoint=checkpoint,
        spec=submitted_fields(record.spec.submitted),
    )


def _recoveries(noted: Recoveries) -> JobRecoveries | None:
    if not noted.latest:
        return None
    last = noted.latest[-1]
    return JobRecoveries(
        count=noted.count,
        recovery_s=round(noted.down_s, 3),
        lost_work_s=round(noted.lost_s, 3),
        last=JobRecovery(
            role=last.role,
            reason=last.reason,
            whole=last.of_gang,
            recovery_s=round(last.down_s, 3),
            lost_work_s=None if last.lost_s is None else round(last.lost_s, 3),
            stages=last.stages,
        ),
    )


def _outputs(stored: StoredOutputs | None) -> JobOutputs | None:
    if stored is None:
        return None
    return JobOutputs(
        uri=stored.uri, files=stored.files, bytes=stored.bytes, not_kept=stored.not_kept
    )


def details(spec: Mapping[str, Any], status: WorkloadStatus) -> JobDetails:
    """What the modern list says about a job on request; ``spec`` is the stored document."""
    return JobDetails(
        reason=status.reason,
        message=status.message,
        attempt=status.attempt,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        signal=status.signal,
        runtime=status.runtime,
        arguments=_shorten_arguments(mask_words(_arguments(spec))),
    )


def _arguments(spec: Mapping[str, Any]) -> Sequence[str]:
    """The arguments in a stored spec, also in one of version 0.1."""
    if (workload := spec.get("workload")) is not None:
        return list(workload["program"].get("arguments") or ())
    return spec.get("arguments") or ()


def _shorten_arguments(arguments: Iterable[str]) -> list[str]:
    """The first arguments, of ``LISTED_ARGUMENTS`` characters together; ``…`` stands for the
    rest.
    """
    shown: list[str] = []
    left = LISTED_ARGUMENTS
    for argument in arguments:
        left -= len(argument) + 1
        if left < 0:
            return [*shown, "…"]
        shown.append(argument)
    return shown


def summary(
    line: Summary,
    details: JobDetails | None = None,
    metrics: Mapping[str, MetricValue] | None = None,
) -> JobSummary:
    """A line of the modern list."""
    return JobSummary(
        uid=line.key.uid,
        name=line.key.name,
        org=line.key.org,
        owner=line.owner,
        phase=line.index,
        state=wire_state(Phase(line.index), deleting=line.deleting),
        created_at=line.created_at,
        updated_at=line.updated_at,
        deleting=line.deleting,
        details=details,
        metrics=metrics,
    )


def event(stored_event: Event) -> JobEvent:
    """An event of the modern surface."""
    return JobEvent(
        id=stored_event.id,
        at=stored_event.at,
        type=stored_event.type.value,
        reason=str(stored_event.reason),
        message=stored_event.message,
    )


def submitted_fields(wire: TrainJob) -> Mapping[str, Any]:
    """The fields that were set, secrets masked."""
    shown = {name: value for name, value in codec.encode(wire).items() if value is not None}
    if wire.environment:
        shown["environment"] = mask_variables(wire.environment)
    if wire.job_args:
        shown["job_args"] = masked_arguments(wire.job_args)
    shown |= masked_commands(wire)
    return {name: MASK if name in _SECRET else value for name, value in shown.items()}


def wire_state(phase: Phase, *, deleting: bool) -> str:
    """The word of the original wire."""
    return _DELETING if deleting else WIRE_STATES[phase]


def train_document(
    record: TrainJobRecord, organisation: Organisation, task: str | None = None
) -> dict[str, Any]:
    """A job as the original wire answers submit, describe and start. Every key that its clients
    read is there.

    With ``task``, the member of that task.
    """
    wire, status = record.spec.submitted, record.status
    arguments = masked_arguments(wire.job_args)
    document: dict[str, Any] = {}
    if status.phase.terminal or status.message:
        document["message"] = ": ".join(part for part in (status.reason, status.message) if part)
    document |= {name: getattr(wire, name) for name in _SUBMITTED} | masked_commands(wire)
    document |= {
        "job_args": shlex.join(arguments) if isinstance(arguments, list) else arguments,
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "state": _train_state(record),
        "create_time": original_time(record.created_at),
        "update_time": original_time(record.updated_at),
        "current_rank": str(wire.enable_rank),
        "node_name": status.node,
    }
    if task is not None:
        deleting = record.delete_requested_at is not None
        phase = members.phase_of(record, task)
        name, state = f"{record.key.name}-{task}", wire_state(phase, deleting=deleting)
        document |= {"job_name": name, "state": state}
    return document | dict.fromkeys(_OF_OTHERS) | members.cluster_fields(record, task)


def tuning_document(record: StudyRecord, organisation: Organisation) -> dict[str, Any]:
    """A tuning as the original wire answers submit and describe: as the job that it was."""
    wire, status = record.spec.job, record.status
    arguments = masked_arguments(wire.job_args)
    document: dict[str, Any] = {"message": status.message} if status.message else {}
    document |= {name: getattr(wire, name) for name in _SUBMITTED} | masked_commands(wire)
    document |= dict.fromkeys(_OF_OTHERS)
    return document | {
        "job_name": record.key.name,
        "job_args": shlex.join(arguments) if isinstance(arguments, list) else arguments,
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "state": tuning_state(status.phase, deleting=record.delete_requested_at is not None),
        "create_time": original_time(record.created_at),
        "update_time": original_time(record.updated_at),
        "current_rank": str(wire.enable_rank),
        "node_name": "",
        **tuning_fields(record),
    }


def tuning_state(phase: StudyPhase, *, deleting: bool) -> str:
    """The word of the original wire for a study."""
    return _DELETING if deleting else _TUNING_STATES[phase]


def tuning_fields(record: StudyRecord, trial: int | None = None) -> dict[str, Any]:
    """What the original documents of a tuning and of its trials say about it."""
    trials = record.status.trials
    parameters = record.spec.trials if trial is None else [trials[trial].parameters]
    shown = [masked_parameters(one) for one in parameters]
    return {
        "hyperparameters_name": record.key.name,
        "hyperparameters_goal": "MINIMIZE" if record.spec.goal is Goal.MINIMIZE else "MAXIMIZE",
        "hyperparameters_params": json.dumps(shown if trial is None else shown[0]),
    }


_TUNING_STATES = {
    StudyPhase.RUNNING: "running",
    StudyPhase.PAUSED: "running",
    StudyPhase.STOPPING: "running",
    StudyPhase.COMPLETED: "completed",
    StudyPhase.FAILED: "failed",
    StudyPhase.STOPPED: "stopped",
}


def _train_state(record: TrainJobRecord) -> str:
    """As ``wire_state``; but the answer to a start does not say that nothing happens."""
    if (
        record.status.phase is Phase.SAVED
        and record.spec.workload.desired is Desired.RUN
        and not record.delete_requested_at
    ):
        return _ENQUEUING
    return wire_state(record.status.phase, deleting=record.delete_requested_at is not None)


def train_row(line: Summary, organisation: Organisation) -> dict[str, Any]:
    """A line of the original list: its columns and nothing else, none of them null."""
    return {
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "job_name": line.key.name,
        "state": wire_state(Phase(line.index), deleting=line.deleting),
        "create_time": original_time(line.created_at),
        "update_time": original_time(line.updated_at),
        "current_rank": "-",
        "node_name": "",
    }


def events_document(
    name: str, events: Iterable[Event], free: Capacity | None = None
) -> dict[str, Any]:
    """The original events document.

    ``recommend`` is what its client tells to somebody whose job waits: the free cores, bytes of
    memory and GPUs. It is empty without ``free``.
    """
    recommend = [[free.cpu_millis / 1000, free.memory_bytes, free.gpus]] if free else []
    return {
        "events": [_original_event(name, stored_event) for stored_event in events],
        "recommend": recommend,
    }


def metrics_document(tasks: JobTasks) -> dict[str, Any]:
    """The original metrics document, summed over the tasks that run, as last sampled. Memory in
    bytes.

    ``cpu`` is in percent of one core. Network traffic is not measured; its client needs a number
    there.
    """
    running = [task for task in tasks.items if task.running]
    return {
        "cpu": round(100 * sum(task.cores or 0.0 for task in running), 1),
        "memory": sum(task.memory_bytes or 0 for task in running),
        "network_receive": 0,
        "network_transmit": 0,
    }


def _original_event(name: str, stored_event: Event) -> dict[str, Any]:
    moment = original_time(stored_event.at)
    return {
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "involvedObject": {"name": name},
        "type": stored_event.type.value,
        "reason": str(stored_event.reason),
        "message": stored_event.message,
    }


def original_time(moment: datetime) -> str:
    """Whole seconds: what the original tool's columns have room for."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

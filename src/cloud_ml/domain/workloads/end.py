"""The end of a job: when it was, and what is said of it while its outputs are saved. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.records import Decision, Event, Record
from cloud_ml.domain.workloads.actions import WorkloadAction
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import HasWorkload

_OF_THE_RUN = (Reason.STARTED, Reason.ENVIRONMENT_NOTICE, Reason.TASK_RESTARTED, Reason.TASK_FAILED)
"""Reasons of events that tell of the time before the end."""


def finished_at(
    job: Record[HasWorkload, WorkloadStatus],
    ended: WorkloadStatus,
    gang: ObservedGang,
    now: datetime,
) -> datetime:
    """When the attempt ended: with its last process, or with its finish command, which has no
    process of its own.

    The look comes later, and later still while outputs are saved. Clocks may have been set
    meanwhile.
    """
    ends = [process.finished_at for process in gang.processes if process.finished_at is not None]
    if job.spec.workload.finish_command or not ends:
        ends = [gang.stages.get("ended", now)]
    finished = min(max(ends), now)
    return max(finished, ended.started_at) if ended.started_at is not None else finished


def saving_outputs(
    job: Record[HasWorkload, WorkloadStatus],
    end: Decision[WorkloadStatus, WorkloadAction],
    now: datetime,
) -> Decision[WorkloadStatus, WorkloadAction]:
    """What is committed of the end of a job before its outputs are saved: everything but the end.
    Once.

    Args:
        job: The record as committed.
        end: The decision that ends the job.
        now: The time of the look.
    """
    ended, before = end.status, job.status
    if ended is None or before.reason == Reason.SAVING_OUTPUTS:
        return Decision()
    phase = before.phase if before.phase is Phase.STOPPING else Phase.FINISHING
    message = "the code has ended; its outputs are being saved"
    begun = [event for event in end.events if event.reason in _OF_THE_RUN]
    return Decision(
        status=replace(ended, phase=phase, reason=Reason.SAVING_OUTPUTS, message=message),
        events=[*begun, Event(now, Reason.SAVING_OUTPUTS, message)],
    )

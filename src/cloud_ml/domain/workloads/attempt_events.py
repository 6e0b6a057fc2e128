"""Events about what has happened in an attempt since the last look at it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.workloads import failover_sentences
from cloud_ml.domain.workloads.gangs import ON_REQUEST
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import PLACE_LOST, Reason
from cloud_ml.domain.workloads.record import WorkloadRecord

_OF_THE_GANG = frozenset({Reason.CANCELLED, Reason.SUPERVISOR_LOST}) | PLACE_LOST
"""Ends of processes that their gang took with it."""


def ends(status: WorkloadStatus, gang: ObservedGang, now: datetime) -> list[Event]:
    """Restarts of tasks, and failures that did not end the others."""
    before = {task.name: task.restarts for task in status.tasks}
    known = {task.name for task in status.tasks if task.failed}
    failed = [
        Event(now, Reason.TASK_FAILED, f"{one.name} failed: {one.message}", EventType.WARNING)
        for one in gang.processes
        if _is_tolerated(one, gang) and one.name not in known
    ]
    return failed + [
        Event(
            now,
            Reason.TASK_RESTARTED,
            failover_sentences.task_restart(one, gang.attempt),
            EventType.NORMAL if one.last_end == ON_REQUEST else EventType.WARNING,
        )
        for process in gang.processes
        for one in _at_restarts_since(before.get(process.name, 0), process)
    ]


def _at_restarts_since(count: int, process: ObservedProcess) -> list[ObservedProcess]:
    """The process as it was at each restart behind the first ``count`` ones.

    A task may start again several times while no server looks.
    """
    if process.restarts <= count:
        return []
    earlier = [
        replace(
            process,
            restarts=one.number,
            last_end=one.why,
            last_ran_s=one.ran_s,
            restored_from=one.restored_from,
        )
        for one in process.earlier_restarts
        if one.number > count
    ]
    return [*earlier, process]


def _is_tolerated(process: ObservedProcess, gang: ObservedGang) -> bool:
    """Whether a process has failed for good, and not ended the gang by that."""
    if not process.failed or process.reason in _OF_THE_GANG:
        return False
    if gang.prepared_only:
        return False  # it is the prepare command, in the place of the first task
    if gang.state.over and process.reason is gang.reason is Reason.HUNG:
        return False  # they hang together, and the end of the gang is told
    reported = not process.message or gang.message.startswith(process.message)
    return not (gang.state.over and reported)


def beginning(status: WorkloadStatus, gang: ObservedGang, now: datetime) -> list[Event]:
    """What there is to tell of an attempt that went on and ended between two looks: that it ran,
    since when, and which tasks started again.
    """
    restarts = ends(status, gang, now)
    started = min(
        (process.started_at for process in gang.processes if process.started_at), default=None
    )
    if status.phase is not Phase.STARTING or started is None:
        return restarts
    if gang.prepared_only:
        return notices(gang, started)
    return [
        *notices(gang, started),
        Event(started, Reason.STARTED, started_sentence(gang, over=True)),
        *restarts,
    ]


def notices(gang: ObservedGang, at: datetime) -> list[Event]:
    """What to know about the code and its environment, said once for a job."""
    if gang.attempt > 1:
        return []
    return [Event(at, Reason.ENVIRONMENT_NOTICE, notice) for notice in gang.notices]


def started_sentence(gang: ObservedGang, *, over: bool = False) -> str:
    """That an attempt runs, or ran if its code is ``over``, in what and where."""
    verb = "ran" if over else "is running"
    runtime = f" in {gang.runtime}" if gang.runtime else ""
    return f"attempt {gang.attempt} {verb}{runtime}" + (f" on {gang.node}" if gang.node else "")


def unsaved_files(job: WorkloadRecord, gang: ObservedGang, at: datetime) -> list[Event]:
    """What of the files of the last attempt is gone with it, if files were to be kept."""
    sentence = gang.unsaved_files.sentence if job.spec.workload.keeps_files else ""
    return [Event(at, Reason.FILES_NOT_KEPT, sentence, EventType.WARNING)] if sentence else []

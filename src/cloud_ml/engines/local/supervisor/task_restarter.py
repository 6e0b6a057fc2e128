"""Single tasks of a gang that start again while the others run on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from cloud_ml import failpoints
from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.gangs import restart_process
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.recovery import with_recovery
from cloud_ml.engines.local.logs.merged_log import write_line
from cloud_ml.engines.local.processes import launch
from cloud_ml.engines.local.supervisor import task_signals
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.recovery_clock import RecoveryClock
from cloud_ml.engines.local.supervisor.running_task import RunningTask
from cloud_ml.engines.local.supervisor.task_output import TaskOutput
from cloud_ml.engines.local.supervisor.task_starter import TaskStarter


class TaskRestarter:
    """Starts tasks of an attempt again.

    Args:
        attempt: What the tasks share.
        starter: Starts their processes.
        output: Reads what they write.
        attend: Hears a started process.
        publish: Reports all tasks at once.
        publish_soon: Reports them, perhaps with others.
    """

    def __init__(
        self,
        attempt: StagedAttempt,
        starter: TaskStarter,
        output: TaskOutput,
        *,
        attend: Callable[[RunningTask], None],
        publish: Callable[[], None],
        publish_soon: Callable[[], None],
    ) -> None:
        self._attempt = attempt
        self._starter = starter
        self._output = output
        self._attend = attend
        self._publish = publish
        self._publish_soon = publish_soon

    def take_request(self, task: RunningTask, number: int, grace_s: float) -> None:
        """Have a task end and start again, because somebody wants it to: the restart ``number`` of
        those that were asked for. One that is about to start again does so now.
        """
        if number <= task.observed.requested_restarts:
            return
        task.observed = replace(task.observed, requested_restarts=number)
        # The report has the request before it is fulfilled: nobody leaves it once more.
        self._publish()
        failpoints.here("task_restart.request.taken")
        if task.exit is not None:
            task.restart_at = time.monotonic()
            return
        task.asked_to_restart, task.kill_at = True, time.monotonic() + grace_s
        if grace_s > 0:
            self._attempt.stage.task_files.leave_notice(task.plan.name, Reason.RESTARTING, grace_s)
            task_signals.terminate(task, sandboxed=self._attempt.sandboxed)

    def restart(self, task: RunningTask) -> None:
        """Start a task again, as soon as no process of its predecessor lives.

        The report has the restart before it happens: whoever reads it never counts too few.
        """
        # At each look: what was just being forked when the last signals were sent gets this one.
        task.limiter.kill()
        if not launch.is_gone(task.launched) or task.group.processes():
            task.restart_at = task.looks.next_at()
            return
        recovery, ended = task.recovery, task.observed
        if recovery is not None:
            recovery.note_gone()
        self._clear_predecessor(task)
        checkpoint = self._attempt.stage.checkpoints.newest()
        self._announce(task, checkpoint)
        failpoints.here("supervisor.restart.before")
        self._start(task, checkpoint)
        if recovery is not None:
            self._note_recovery(recovery, ended, checkpoint)
        failpoints.here("supervisor.restart.after")

    def _clear_predecessor(self, task: RunningTask) -> None:
        self._output.drain(task)
        task.launched.close()
        if task.asked_to_restart:
            self._attempt.stage.task_files.remove_notice(task.plan.name)
        task.asked_to_restart = False

    def _announce(self, task: RunningTask, checkpoint: NotedCheckpoint | None) -> None:
        task.observed = restart_process(task.observed, datetime.now(UTC), checkpoint)
        count, why = task.observed.restarts, task.observed.last_end
        write_line(task.log, f"cloudml: {task.plan.name} starts again ({count}): {why}")
        self._publish()

    def _start(self, task: RunningTask, checkpoint: NotedCheckpoint | None) -> None:
        variables = {"CLOUDML_TASK_RESTART": str(task.observed.restarts)}
        if checkpoint is not None:
            checkpoints = self._attempt.stage.checkpoints
            variables["CLOUDML_RESTORE_FROM"] = checkpoints.path_of(checkpoint)
        task.plan = replace(task.plan, environment={**task.plan.environment, **variables})
        task.restart_at, task.exit, task.exceeded, task.hung = None, None, None, False
        task.sent_signals.clear()
        task.looks.begin()
        self._starter.start_again(task)
        self._attend(task)

    def _note_recovery(
        self, clock: RecoveryClock, ended: ObservedProcess, checkpoint: NotedCheckpoint | None
    ) -> None:
        """Report what the end of a task has cost, with what is reported next."""
        reporter = self._attempt.reporter
        recovery = clock.recovery(ended, checkpoint)
        reporter.update(recoveries=with_recovery(reporter.report.recoveries, recovery))
        self._publish_soon()

"""What the end of a task shows: why it failed, what the rules of restarts look for in its output,
and how far it had come.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

from cloud_ml.domain.workloads.exits import EXITS, find_texts
from cloud_ml.domain.workloads.gangs import with_end
from cloud_ml.domain.workloads.progress import Milestone, milestone_of
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.failures import explain
from cloud_ml.engines.local.failures.log_patterns import find_patterns
from cloud_ml.engines.local.processes.limits import Verdict, signal_name
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.running_task import RunningTask


class EndFindings:
    """Looks at tasks of an attempt that have ended."""

    def __init__(self, attempt: StagedAttempt) -> None:
        self._attempt = attempt

    def say_why(self, task: RunningTask, verdict: Verdict) -> Verdict:
        """With the last words of the process, and what usually helps."""
        if task.exit is None or verdict.reason not in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
            return verdict
        # Its end may be seen before its last words are. Who reads the end of the pipe lets go of
        # it: not here, where an event of it may be waiting its turn.
        with contextlib.suppress(OSError):
            task.log.write(os.read(task.launched.output, 1 << 18))
        limit = self._attempt.disk_limit
        if limit is not None and (full := limit.verdict(task.last_words)) is not None:
            return full
        killed_by = signal_name(task.exit.signal) if task.exit.signal else ""
        context = replace(self._attempt.failure_context, command=task.shell_line)
        message = explain.message(
            verdict.message, task.last_words, context, code=task.exit.code, killed_by=killed_by
        )
        return replace(verdict, message=message)

    def texts(self, task: RunningTask, verdict: Verdict) -> tuple[str, ...]:
        """Texts of the user's rules in the last words of a process that has failed."""
        if verdict.reason is Reason.COMPLETED or not self._attempt.gang.log_texts:
            return ()
        return find_texts(self._attempt.gang.log_texts, task.last_words)

    def note_patterns(self, task: RunningTask) -> None:
        """Note which patterns of the user's rules the last words of a process have, if it has failed
        so that rules count.
        """
        patterns = self._attempt.gang.log_patterns
        if task.observed.reason not in EXITS or not patterns:
            return
        stage = self._attempt.stage
        found = find_patterns(stage.fence, patterns, task.last_words, stage.folders.attempt)
        task.observed = replace(task.observed, found_patterns=found.patterns)
        if found.problem:
            message = (
                f"{task.observed.message}; patterns of restart.rules do not count: {found.problem}"
            )
            task.observed = replace(task.observed, message=message)

    def note_progress(self, task: RunningTask, healthy_s: float) -> None:
        """Note how far a task that has ended had come, and count its end."""
        if not task.runs_code:
            return
        milestone = self.note_milestone(task)
        if task.observed.reason is not Reason.COMPLETED:
            task.observed = with_end(task.observed, milestone, healthy_s)

    def note_milestone(self, task: RunningTask) -> Milestone:
        """Note how far the gang has come, with a task that has ended."""
        stage, reporter = self._attempt.stage, self._attempt.reporter
        found = stage.task_files.progress(task.plan.name)
        reports = [one for one in (found,) if one is not None]
        reached = milestone_of(reports, stage.checkpoints.noted())
        milestone = reporter.report.milestone.with_(reached)
        reporter.update(milestone=milestone)
        task.observed = replace(task.observed, progress=found)
        return milestone

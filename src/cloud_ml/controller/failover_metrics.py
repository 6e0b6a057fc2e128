"""Counts the restarts of train jobs, when they are committed."""

from __future__ import annotations

from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.observability.metrics import Counter, Histogram, Metrics

ROLES = frozenset(
    {
        "master",
        "chief",
        "worker",
        "ps",
        "evaluator",
        "launcher",
        "scheduler",
        "client",
        "task",
    }
)
"""Roles with a label of their own. Jobs may name others: a label for each would have no end."""
_OTHER = "other"
_RECOVERY_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LOST_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 86400.0)


class FailoverMetrics:
    """Restarts, the time that they took and the work that was lost."""

    def __init__(self, metrics: Metrics) -> None:
        self._tasks = Counter(
            "cloudml_task_restarts_total",
            "Restarts of a single task, while the others ran on.",
            ("role", "reason"),
        )
        self._jobs = Counter(
            "cloudml_job_restarts_total",
            "Attempts that follow a failed one, by the task that failed.",
            ("role", "reason"),
        )
        self._recovery = Histogram(
            "cloudml_recovery_seconds",
            "Time from a failure until it runs again, without the delay of retries.",
            ("of", "stage"),
            _RECOVERY_S,
        )
        self._lost_work = Histogram(
            "cloudml_lost_work_seconds",
            "Time from the last complete checkpoint, or the start, to a failure.",
            ("of",),
            _LOST_S,
        )
        metrics.add([self._tasks, self._jobs, self._recovery, self._lost_work])

    def count(self, before: WorkloadStatus, committed: WorkloadStatus) -> None:
        """Count what a commit has added."""
        for one in committed.recoveries.since(before.recoveries):
            role = one.role if one.role in ROLES else _OTHER
            of = "job" if one.of_gang else "task"
            (self._jobs if one.of_gang else self._tasks).add(role, one.reason)
            for stage, seconds in one.stages.items():
                self._recovery.observe(seconds, of, stage)
            if one.lost_s is not None:
                self._lost_work.observe(one.lost_s, of)

"""Restarts are counted when they are committed, under labels that have an end."""

from __future__ import annotations

from cloud_ml.controller.failover_metrics import FailoverMetrics
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.recovery import GangFailure, Recoveries, Recovery
from cloud_ml.observability.metrics import Metrics
from support.jobs import NOW


def test_what_a_commit_adds_is_counted() -> None:
    metrics = Metrics()
    failover = FailoverMetrics(metrics)
    task = Recovery("worker", "Signaled", 1.0, 20.0, {"detect": 0.02, "end": 0.04}, number=1)
    named = Recovery("my-secret-role", "OOMKilled", 1.0, None, number=2)
    failure = GangFailure("ps", "NonZeroExit", NOW, 90.0, {"end": 0.3})
    tasks = Recoveries().with_tasks(1, (task, named))
    gang = tasks.after_failure(failure).running_again(NOW, {})
    for before, committed in ((Recoveries(), tasks), (tasks, tasks), (tasks, gang)):
        failover.count(WorkloadStatus(recoveries=before), WorkloadStatus(recoveries=committed))
    text = metrics.text()
    for line in (
        'cloudml_task_restarts_total{role="worker",reason="Signaled"} 1',
        'cloudml_task_restarts_total{role="other",reason="OOMKilled"} 1',
        'cloudml_job_restarts_total{role="ps",reason="NonZeroExit"} 1',
        'cloudml_recovery_seconds_bucket{of="task",stage="detect",le="0.01"} 0',
        'cloudml_recovery_seconds_bucket{of="task",stage="detect",le="0.025"} 1',
        'cloudml_recovery_seconds_sum{of="job",stage="end"} 0.3',
        'cloudml_lost_work_seconds_count{of="task"} 1',
        'cloudml_lost_work_seconds_sum{of="job"} 90',
    ):
        assert f"{line}\n" in text
    assert "secret" not in text

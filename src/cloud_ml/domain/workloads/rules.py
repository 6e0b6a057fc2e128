"""What the operator has set about the life of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloud_ml.domain.workloads.spec import WorkloadSpec


@dataclass(frozen=True)
class Rules:
    """What the operator has set about the life of jobs. Times in seconds."""

    stop_grace_s: float = 10.0
    start_timeout_s: float = 3600.0

    def grace_s(self, spec: WorkloadSpec) -> float:
        """The time that a job has between SIGTERM and SIGKILL."""
        return self.stop_grace_s if spec.grace_s is None else spec.grace_s


def next_look(now: datetime, grace_s: float) -> datetime:
    """When to look again at an attempt that has ``grace_s`` seconds to end."""
    return now + timedelta(seconds=max(1.0, grace_s / 4))

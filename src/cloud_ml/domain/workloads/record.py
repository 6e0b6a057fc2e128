"""A record of something that runs in attempts, and what is decided about it."""

from __future__ import annotations

from cloud_ml.domain.records import Decision, Record
from cloud_ml.domain.workloads.actions import WorkloadAction
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import HasWorkload

WorkloadRecord = Record[HasWorkload, WorkloadStatus]
WorkloadDecision = Decision[WorkloadStatus, WorkloadAction]

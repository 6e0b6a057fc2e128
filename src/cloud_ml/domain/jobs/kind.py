"""The kind under which jobs are stored."""

from __future__ import annotations

from cloud_ml.domain.jobs.phases import JobStatus
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Kind

TRAIN_JOB = Kind("train_job", JobSpec, JobStatus)

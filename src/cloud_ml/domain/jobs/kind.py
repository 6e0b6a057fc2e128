"""The kind under which jobs are stored, and the words under which they are found."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

from cloud_ml.domain.jobs.phases import JobStatus
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Kind


def framework_tag(framework: str) -> str:
    """The tag of jobs that asked for a framework, or ran with it."""
    return f"framework={framework}"


def label_tag(name: str, value: str) -> str:
    """The tag of jobs with this label. No two labels share one."""
    return f"label:{quote(name, safe='')}={value}"


def _asked_for(spec: JobSpec) -> Collection[str]:
    job = spec.submitted
    labels = {label_tag(name, value) for name, value in (job.labels or {}).items()}
    return labels | {framework_tag(job.framework)} if job.framework else labels


def _ran_with(status: JobStatus) -> Collection[str]:
    """``runtime`` reads ``tensorflow 2.21``: what the code turned out to need."""
    framework = status.runtime.partition(" ")[0]
    return {framework_tag(framework)} if framework else ()


TRAIN_JOB = Kind("train_job", JobSpec, JobStatus, spec_tags=_asked_for, status_tags=_ran_with)

"""The kind under which jobs are stored, and the words under which they are found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from urllib.parse import quote

from cloud_ml.domain.jobs.spec import JobSpec, upgrade_document
from cloud_ml.domain.record_sizes import size_tags
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.workloads.phases import WorkloadStatus

_EXPORTING = re.compile(r"model|export|output", re.IGNORECASE)
_MOST_EXPORTS = 8
_LONGEST_URI = 200


def framework_tag(framework: str) -> str:
    """The tag of jobs that asked for a framework, or ran with it."""
    return f"framework={framework}"


def label_tag(name: str, value: str) -> str:
    """The tag of jobs with this label. No two labels share one."""
    return f"label:{quote(name, safe='')}={value}"


def export_tag(uri: str) -> str:
    """The tag of jobs that export to a folder."""
    return f"export={uri.rstrip('/')}"


def logdir_tag(uri: str) -> str:
    """The tag of jobs that write event files to a folder, whatever its length."""
    return f"logdir={hashlib.sha256(uri.rstrip('/').encode()).hexdigest()[:32]}"


def exports(spec: JobSpec) -> Sequence[str]:
    """The folders that a job says to export to, the one that is meant for models first.

    By its fields, and by arguments whose names sound like it (``--model_path=fds://…``,
    ``--export_dir fds://…``).
    """
    job = spec.submitted
    found = [job.model_export_path, *_exporting(spec.workload.program.arguments), job.output_path]
    uris = (
        uri.rstrip("/")
        for uri in found
        if uri and uri.startswith("fds://") and len(uri) <= _LONGEST_URI
    )
    return list(dict.fromkeys(uris))[:_MOST_EXPORTS]


def _exporting(arguments: Sequence[str]) -> Iterator[str]:
    for word, behind in pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        if name.startswith("-") and _EXPORTING.search(name):
            yield value if equals else behind


def _spec_tags(spec: JobSpec) -> Collection[str]:
    job = spec.submitted
    tags = {label_tag(name, value) for name, value in (job.labels or {}).items()}.union(
        size_tags(spec)
    )
    if job.framework:
        tags.add(framework_tag(job.framework))
    if job.tensorboard_logdir:
        tags.add(logdir_tag(job.tensorboard_logdir))
    for uri in exports(spec):
        folder, _, last = uri.rpartition("/")
        # A number is a version: a service loads its model from the folder above.
        tags.add(export_tag(folder if last.isdigit() else uri))
    return tags


def _ran_with(status: WorkloadStatus) -> Collection[str]:
    """``runtime`` reads ``tensorflow 2.21``: what the code turned out to need."""
    framework = status.runtime.partition(" ")[0]
    return {framework_tag(framework)} if framework else ()


TRAIN_JOB = Kind(
    "train_job",
    JobSpec,
    WorkloadStatus,
    spec_tags=_spec_tags,
    status_tags=_ran_with,
    upgrade=upgrade_document,
)
TrainJobRecord = Record[JobSpec, WorkloadStatus]

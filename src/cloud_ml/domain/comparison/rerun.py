"""A job that runs another one again from its record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloud_ml.domain.comparison.facts import packages_of
from cloud_ml.domain.jobs.kind import TrainJobRecord, exports
from cloud_ml.domain.workloads.seeds import SEED_VARIABLE, seed_of
from cloud_ml.models.jobs.clone import REPRODUCES_LABEL, labels_of_copy
from cloud_ml.models.jobs.train_job import TrainJob

_WRITTEN = (
    "output_path", "model_export_path", "data_output_path", "log_path", "tensorboard_logdir",
)  # fmt: skip
_MOST_PINS = 200


def rerun_of(job: TrainJobRecord, name: str) -> TrainJob:
    """The job ``name`` that does what ``job`` did: with its seed and its packages.

    It writes beside the folders that the job has written to, and deploys nothing. Its checkpoints
    are in a folder of its own: it is not to go on from those of the job.
    """
    submitted = job.spec.submitted
    variables = job.spec.workload.program.variables
    moved = moved_uris(job, name)
    environment = {
        one: moved.get(value.rstrip("/"), value)
        for one, value in (submitted.environment or {}).items()
    }
    environment[SEED_VARIABLE] = seed_of(job.key.uid, variables)
    changes: dict[str, Any] = {
        field: moved.get((getattr(submitted, field) or "").rstrip("/"), getattr(submitted, field))
        for field in _WRITTEN
    }
    if pins := pins_of(job.status.environment_lock):
        changes["requirements"] = pins
    return replace(
        submitted,
        job_name=name,
        job_args=[_move(word, moved) for word in submitted.arguments()] or None,
        environment=environment,
        labels={**labels_of_copy(job.key.name, submitted.labels), REPRODUCES_LABEL: job.key.uid},
        restore_from=job.spec.workload.restore_from or submitted.restore_from,
        save_mode=False,
        model_name=None,
        model_version=None,
        hyperparameters=None,
        checkpoint=None if job.spec.workload.checkpoint_folder else submitted.checkpoint,
        **changes,
    )


def moved_uris(job: TrainJobRecord, name: str) -> Mapping[str, str]:
    """Where the job ``name`` writes to in the place of the folders of ``job``."""
    submitted = job.spec.submitted
    written = [*exports(job.spec), *(getattr(submitted, field) for field in _WRITTEN)]
    found = {uri.rstrip("/") for uri in written if uri and uri.startswith("fds://")}
    return {uri: f"{uri}{'.' if uri.count('/') > 2 else '/'}{name}" for uri in found}


def pins_of(lock: str) -> list[str]:
    """The packages of a lock as requirements; none where they are too many."""
    packages = packages_of(lock)
    if len(packages) > _MOST_PINS:
        return []
    return [f"{name}=={version}" for name, version in sorted(packages.items())]


def _move(word: str, moved: Mapping[str, str]) -> str:
    flag, equals, value = word.partition("=")
    if equals and word.startswith("-"):
        return f"{flag}={moved.get(value.rstrip('/'), value)}"
    return moved.get(word.rstrip("/"), word)

"""Checkpoints of jobs that other jobs and services refer to: those are never removed. Blocking.

A reference is noted in the spec of the job that has saved the checkpoint, before the record that
refers to it is made. Which checkpoints are to go is committed with the status of the same record,
guarded by its revision. So whichever comes second knows of the other: either the checkpoint stays,
or nobody refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads import checkpoints as rules
from cloud_ml.domain.workloads.spec import WorkloadSpec, change_workload
from cloud_ml.errors import NotFound
from cloud_ml.models.common import split_uri
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.checkpoints import Checkpoints

_MOST_REFERRED = 200
"""A job with more of them, or with a longer path, keeps all of its checkpoints."""
_ALL = ""
_LONGEST_PATH = 1000
_LONGEST_UID = 63


class CheckpointReferences:
    """Notes who refers to what. References stay when the record that refers goes."""

    def __init__(self, store: StateStore, checkpoints: Checkpoints, clock: Clock) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._clock = clock

    def refer(self, org: str, uris: Sequence[str]) -> str:
        """Have the checkpoints among some URIs kept; returns the first that is about to be removed,
        or nothing. Repeating it is harmless.
        """
        for uri in uris:
            found = self._job_of(org, uri)
            if found is not None and not self._is_kept(*found):
                return uri
        return ""

    def _job_of(self, org: str, uri: str) -> tuple[TrainJobRecord, str] | None:
        """The job that may remove the checkpoint at a URI, and its path."""
        bucket, key = split_uri(uri)
        uid, path = rules.split_key(key)
        is_uid = len(uid) <= _LONGEST_UID and uid.isascii() and uid.isalnum()
        if not uri.startswith("fds://") or not is_uid:
            return None
        job = self._store.get(TRAIN_JOB, uid)
        if job is None or job.key.org != org or job.spec.workload.keep_checkpoints is None:
            return None
        folder = rules.folder_of(job.key.name, uid)
        mine = key == folder or key.startswith(f"{folder}/")
        return (job, path) if mine and self._checkpoints.bucket(job) == bucket else None

    def _is_kept(self, job: TrainJobRecord, path: str) -> bool:
        def referred(workload: WorkloadSpec) -> WorkloadSpec:
            known = workload.referred_checkpoints
            if path in known or _ALL in known:
                return workload
            few = len(known) < _MOST_REFERRED and len(path) <= _LONGEST_PATH
            more = (*known, path) if few else (_ALL,)
            return replace(workload, referred_checkpoints=more)

        try:
            changed = self._store.change_spec(
                TRAIN_JOB,
                job.key.uid,
                lambda spec: change_workload(spec, referred),
                now=self._clock(),
            )
        except NotFound:  # its checkpoints stay
            return True
        dropped = (one.path for one in changed.status.dropped_checkpoints)
        return not path or not any(rules.is_referred(one, [path]) for one in dropped)

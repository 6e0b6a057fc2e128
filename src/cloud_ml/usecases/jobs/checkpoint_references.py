"""Checkpoints of jobs that other jobs and services refer to: those are never removed. Blocking.

A reference is noted in the spec of the job that has saved the checkpoint, before the record that
refers to it is made. Which checkpoints are to go is committed with the status of the same record,
guarded by its revision; that all of them are to go stands in the same spec. So whichever comes second
knows of the other: either the checkpoint stays, or nobody refers to it.

Trials of one study note nothing of each other: their study knows which of them goes on from which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event, ParentRef
from cloud_ml.domain.workloads import checkpoints as rules
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import WorkloadSpec, change_workload
from cloud_ml.errors import NotFound
from cloud_ml.models.common import split_uri
from cloud_ml.state.base import Fence, StateStore
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

    def refer(self, org: str, uris: Sequence[str], parent: ParentRef | None = None) -> str:
        """Have the checkpoints among some URIs kept, for a record that was made for ``parent``; returns
        the first that is about to be removed, or nothing. Repeating it is harmless.
        """
        for uri in uris:
            found = self._job_of(org, uri)
            if found is None:
                continue
            job, path = found
            is_sibling = parent is not None and job.parent == parent
            if not (_has(job, path) if is_sibling else self._is_kept(job, path)):
                return uri
        return ""

    def drop(self, job: TrainJobRecord, why: str, fence: Fence) -> bool:
        """Have all checkpoints of a job go, unless somebody refers to one. Returns whether they go.

        Raises:
            NotFound: The job is gone.
            FenceLost: Another controller has taken over.
        """

        def dropped(workload: WorkloadSpec) -> WorkloadSpec:
            if workload.referred_checkpoints:
                return workload
            return replace(workload, drops_checkpoints=True)

        now = self._clock()
        changed = self._store.change_spec(
            TRAIN_JOB,
            job.key.uid,
            lambda spec: change_workload(spec, dropped),
            now=now,
            events=[Event(now, Reason.CHECKPOINTS_REMOVED, why)],
            fence=fence,
        )
        return changed.spec.workload.drops_checkpoints

    def _job_of(self, org: str, uri: str) -> tuple[TrainJobRecord, str] | None:
        """The job that may remove the checkpoint at a URI, and its path."""
        bucket, key = split_uri(uri)
        uid, path = rules.split_key(key)
        is_uid = len(uid) <= _LONGEST_UID and uid.isascii() and uid.isalnum()
        if not uri.startswith("fds://") or not is_uid:
            return None
        job = self._store.get(TRAIN_JOB, uid)
        if job is None or job.key.org != org:
            return None
        if job.spec.workload.keep_checkpoints is None and job.parent is None:
            return None
        folder = rules.folder_of(job.key.name, uid)
        mine = key == folder or key.startswith(f"{folder}/")
        return (job, path) if mine and self._checkpoints.bucket(job) == bucket else None

    def _is_kept(self, job: TrainJobRecord, path: str) -> bool:
        def referred(workload: WorkloadSpec) -> WorkloadSpec:
            known = workload.referred_checkpoints
            if path in known or _ALL in known or workload.drops_checkpoints:
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
        return _has(changed, path)


def _has(job: TrainJobRecord, path: str) -> bool:
    """Whether the checkpoint at a path of a job is not about to be removed."""
    if job.spec.workload.drops_checkpoints:
        return False
    dropped = (one.path for one in job.status.dropped_checkpoints)
    return not path or not any(rules.is_referred(one, [path]) for one in dropped)

"""Removal of the checkpoints of trials, while somebody asks for other ones to be kept."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from datetime import UTC, datetime

import pytest

from cloud_ml.controller.results.trial_checkpoints import TrialCheckpointRemoval
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.studies.spec import STUDY, StudyStatus, TrialCheckpoints, trial_name
from cloud_ml.domain.workloads.checkpoints import folder_of
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.state.base import Fence
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.jobs.checkpoint_references import CheckpointReferences
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.offload import Offload
from support.jobs import spec_of
from unit.domain.studies.test_decide import study_record

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET, TRIALS = "cloudml", 3


class OneBucket:
    """The storage of an organisation with one bucket."""

    def owns(self, org: str, bucket: str) -> bool:
        return (org, bucket) == ("o", BUCKET)


class ChangesPolicy(Checkpoints):
    """While it removes the first ones, a user asks that all are kept."""

    study = ""

    def remove_all(self, job: TrainJobRecord) -> None:
        super().remove_all(job)
        self._store.change_spec(
            STUDY,
            self.study,
            lambda spec: dataclasses.replace(spec, keep_checkpoints=None),
            now=NOW,
        )


async def test_what_a_user_asks_for_meanwhile_holds_for_the_trials_that_are_left() -> None:
    store, objects, offload = MemoryStateStore(), MemoryObjectStore(), Offload()
    objects.create_bucket(BUCKET)
    checkpoints = ChangesPolicy(store, OneBucket(), objects)  # type: ignore[arg-type]
    spec = dataclasses.replace(study_record().spec, keep_checkpoints=0)
    study = store.create(
        STUDY, org="o", name="study", owner="u", spec=spec, status=StudyStatus(), now=NOW
    )
    checkpoints.study = study.key.uid
    files = []
    for number in range(TRIALS):
        job = store.create(
            TRAIN_JOB,
            org="o",
            name=trial_name("study", number),
            owner="u",
            spec=spec_of(fds_bucket=BUCKET),
            status=WorkloadStatus(phase=Phase.SUCCEEDED),
            now=NOW,
            parent=ParentRef(STUDY.name, study.key.uid),
        )
        files.append(f"{folder_of(job.key.name, job.key.uid)}/step-1")
        objects.put(BUCKET, files[-1], b"x")
    lease = store.acquire_lease("leader", "a", ttl_s=60, now=NOW)
    assert lease is not None
    wake_event = asyncio.Event()
    removal = TrialCheckpointRemoval(
        store,
        CheckpointReferences(store, checkpoints, lambda: NOW),
        checkpoints,
        offload=offload,
        fence=Fence("leader", lease.epoch),
        wake=lambda _uid: wake_event.set(),
        monotonic=itertools.count().__next__,
    )
    removal.begin(study, range(TRIALS))
    await asyncio.wait_for(wake_event.wait(), 10)
    assert removal.take_found(study) == {0: TrialCheckpoints.REMOVED}
    assert [objects.head(BUCKET, file) is not None for file in files] == [False, True, True]
    offload.close()

"""Checkpoints that a job keeps, under crashes, lingering leaders, and others who refer to them.

Each look is taken in its three steps: read, commit, remove. Between any two of them the job may
save, somebody may refer to a checkpoint, and another leader may take the same steps.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.studies.spec import STUDY, StudyStatus
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint, folder_of
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.errors import StaleRevision
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.state.base import Fence
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.jobs.checkpoint_references import CheckpointReferences
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from support.jobs import spec_of
from unit.domain.studies.test_decide import study_record

EXAMPLES = int(os.environ.get("PROPERTIES_EXAMPLES", "25"))
pytestmark = pytest.mark.timeout(max(300, 2 * EXAMPLES))

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET, KEEP = "cloudml", 2
NAMES = ("a", "b", "c", "ckpt-1", "ckpt-10")
"""Few: a job that saves under a name again is the difficult one."""

STUDY_SPEC = study_record().spec
Look = tuple[TrainJobRecord, tuple[NotedCheckpoint, ...]]


class OneBucket:
    """The storage of an organisation with one bucket."""

    def owns(self, org: str, bucket: str) -> bool:
        return (org, bucket) == ("o", BUCKET)


class KeptCheckpoints(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStateStore()
        self.objects = MemoryObjectStore()
        self.objects.create_bucket(BUCKET)
        self.checkpoints = Checkpoints(self.store, OneBucket(), self.objects)  # type: ignore[arg-type]
        self.references = CheckpointReferences(self.store, self.checkpoints, lambda: NOW)
        self.uid = self.store.create(
            TRAIN_JOB,
            org="o",
            name="job",
            owner="u",
            spec=spec_of(checkpoint={"keep": KEEP}, fds_bucket=BUCKET),
            status=WorkloadStatus(phase=Phase.RUNNING),
            now=NOW,
        ).key.uid
        self.notes: list[dict[str, object]] = []
        self.whole: dict[str, int] = {}
        self.referred: dict[str, int] = {}
        self.seen: list[Look] = []
        self.committed: list[Look] = []

    @property
    def job(self) -> TrainJobRecord:
        found = self.store.get(TRAIN_JOB, self.uid)
        assert found is not None
        return found

    def key(self, path: str) -> str:
        return f"{folder_of('job', self.uid)}/{path}"

    def files(self, path: str) -> list[str]:
        shards = [f"{path}.data-{number:05}-of-00002" for number in range(2)]
        by_kind = {"a": [path], "b": [f"{path}/x", f"{path}/y"]}
        return [self.key(one) for one in by_kind.get(path, [*shards, f"{path}.index"])]

    @rule(name=st.sampled_from(NAMES))
    def the_job_saves(self, name: str) -> None:
        """Under a name that is free, as the page asks for, or was removed."""
        if self.checkpoints._is_there(BUCKET, self.key(name), float("inf")):
            return
        step = len(self.notes) + 1
        for file in self.files(name):
            self.objects.put(BUCKET, file, b"x")
        self.notes.append({"path": name, "step": step, "time": float(step)})
        lines = "\n".join(map(json.dumps, self.notes))
        self.objects.put(BUCKET, self.key(".saved.jsonl"), lines.encode())
        self.whole[name] = step

    @rule(name=st.sampled_from(NAMES))
    def somebody_refers(self, name: str) -> None:
        """First they see that it is there, as every submission does."""
        uri = f"fds://{BUCKET}/{self.key(name)}"
        if self.checkpoints.at("o", uri) and not self.references.refer("o", [uri]):
            self.referred[name] = self.whole[name]

    @rule()
    def a_leader_reads(self) -> None:
        job = self.job
        self.seen.append((job, tuple(self.checkpoints.superseded(job))))

    @rule(data=st.data())
    @precondition(lambda self: self.seen)
    def a_leader_commits(self, data: st.DataObject) -> None:
        job, found = self.seen.pop(data.draw(st.integers(0, len(self.seen) - 1)))
        if found == job.status.dropped_checkpoints:
            self.committed.append((job, found))
            return
        status = replace(job.status, dropped_checkpoints=found)
        try:
            committed = self.store.commit_status(
                TRAIN_JOB, self.uid, status, expected_revision=job.revision, fence=None, now=NOW
            )
        except StaleRevision:
            return
        self.committed.append((committed, found))

    @rule(data=st.data(), most=st.integers(0, 3))
    @precondition(lambda self: self.committed)
    def a_leader_removes(self, data: st.DataObject, most: int) -> None:
        """Some of them: it may be killed meanwhile, or it comes very late."""
        job, found = self.committed.pop(data.draw(st.integers(0, len(self.committed) - 1)))
        self.checkpoints.remove(job, found[:most], lambda: False)
        for one in found[:most]:
            if self.whole.get(one.path) == one.step:
                del self.whole[one.path]

    @invariant()
    def the_newest_are_whole(self) -> None:
        newest = sorted(self.whole, key=self.whole.__getitem__)[-KEEP:]
        for name in newest:
            assert all(self.objects.head(BUCKET, file) for file in self.files(name)), name
        assert self.checkpoints.newest(self.job) == (newest[-1] if newest else "")

    @invariant()
    def nobody_refers_to_what_is_gone(self) -> None:
        for name, step in self.referred.items():
            assert self.whole.get(name, 0) >= step, name
            assert all(self.objects.head(BUCKET, file) for file in self.files(name))


KeptCheckpoints.TestCase.settings = hypothesis_settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None
)
TestKeptCheckpoints = KeptCheckpoints.TestCase


class CheckpointsOfTrial(RuleBasedStateMachine):
    """A trial that has ended, whose study may keep the checkpoints of others only."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStateStore()
        self.objects = MemoryObjectStore()
        self.objects.create_bucket(BUCKET)
        self.checkpoints = Checkpoints(self.store, OneBucket(), self.objects)  # type: ignore[arg-type]
        self.references = CheckpointReferences(self.store, self.checkpoints, lambda: NOW)
        lease = self.store.acquire_lease("leader", "a", ttl_s=60, now=NOW)
        assert lease is not None
        self.fence = Fence("leader", lease.epoch)
        study = self._create(STUDY, "study", StudyStatus())
        self.parent = ParentRef(STUDY.name, study)
        self.uid = self._create(
            TRAIN_JOB, "study-hp-0", WorkloadStatus(phase=Phase.SUCCEEDED), parent=self.parent
        )
        self.folder = folder_of("study-hp-0", self.uid)
        notes = []
        for step, name in enumerate(NAMES):
            self.objects.put(BUCKET, f"{self.folder}/{name}", b"x")
            notes.append(json.dumps({"path": name, "step": step, "time": float(step)}))
        self.objects.put(BUCKET, f"{self.folder}/.saved.jsonl", "\n".join(notes).encode())
        self.referred: set[str] = set()
        self.dropped: list[TrainJobRecord] = []

    def _create(self, kind: Any, name: str, status: Any, **fields: Any) -> str:
        spec = spec_of(fds_bucket=BUCKET) if kind is TRAIN_JOB else STUDY_SPEC
        made = self.store.create(
            kind, org="o", name=name, owner="u", spec=spec, status=status, now=NOW, **fields
        )
        return made.key.uid

    @property
    def job(self) -> TrainJobRecord:
        found = self.store.get(TRAIN_JOB, self.uid)
        assert found is not None
        return found

    @rule(name=st.sampled_from(["", *NAMES]))
    def somebody_refers(self, name: str) -> None:
        """To one, or to the folder, which stands for the newest."""
        uri = self.checkpoints.at("o", f"fds://{BUCKET}/{self.folder}/{name}".rstrip("/"))
        if uri and not self.references.refer("o", [uri]):
            self.referred.add(uri.rpartition("/")[2])

    @rule(name=st.sampled_from(NAMES))
    def another_trial_of_the_study_refers(self, name: str) -> None:
        """That notes nothing: the study decides which of them goes on from which."""
        self.references.refer("o", [f"fds://{BUCKET}/{self.folder}/{name}"], self.parent)

    @rule()
    def a_leader_drops(self) -> None:
        if self.references.drop(self.job, "others are kept", self.fence):
            self.dropped.append(self.job)

    @rule()
    @precondition(lambda self: self.dropped)
    def a_leader_removes(self) -> None:
        """Perhaps a stale one, once more."""
        self.checkpoints.remove_all(self.dropped[-1])

    @invariant()
    def nobody_refers_to_what_is_gone(self) -> None:
        assert not (self.referred and self.dropped)
        assert all(self.objects.head(BUCKET, f"{self.folder}/{one}") for one in self.referred)

    @invariant()
    def those_that_are_to_go_are_not_offered(self) -> None:
        assert bool(self.checkpoints.of(self.job).items) != bool(self.dropped)


CheckpointsOfTrial.TestCase.settings = hypothesis_settings(
    max_examples=EXAMPLES, stateful_step_count=20, deadline=None
)
TestCheckpointsOfTrial = CheckpointsOfTrial.TestCase

"""Points of runs that ended long ago go; what lists show of them stays."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.studies.spec import STUDY, Goal, StudyPhase, StudySpec, StudyStatus
from cloud_ml.domain.tracking.runs import (
    RUN,
    LogBatch,
    NewRun,
    RunChange,
    RunSpec,
    RunState,
    RunStatus,
    TrackingLimits,
)
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.metrics.retention import PointRetention

DAYS = 30
NOW = system_clock()
OLD, RECENT = NOW - timedelta(days=DAYS, hours=1), NOW - timedelta(days=DAYS - 1)


class Place:
    """A store with runs that have a point each."""

    def __init__(self) -> None:
        self.store = MemoryStateStore()
        self.retention = PointRetention(self.store, lambda: NOW, DAYS)

    def job(self, name: str, status: WorkloadStatus, parent: ParentRef | None = None) -> str:
        spec = job_specs.from_wire(TrainJob(name, "trainer.task", "fds://cloudml/t.tar.gz"))
        made = self.store.create(
            TRAIN_JOB, org="acme", name=name, owner="ann", spec=spec, status=status, now=OLD,
            run=NewRun(), parent=parent,
        )  # fmt: skip
        return self.with_point(made.key.uid)

    def run(self, name: str, state: RunState, end: int | None, made_at: datetime = OLD) -> str:
        made = self.store.create(
            RUN, org="acme", name=name, owner="ann", spec=RunSpec(), status=RunStatus(),
            now=made_at,
            run=NewRun(state=state),
        )  # fmt: skip
        self.store.tracking.change_run(made.key.uid, RunChange(state=state, end=end))
        return self.with_point(made.key.uid)

    def study(self, phase: StudyPhase) -> ParentRef:
        spec = StudySpec(
            job=TrainJob("grid", "trainer.task", "fds://cloudml/t.tar.gz"), space=(), metric="loss",
            goal=Goal.MINIMIZE, algorithm="grid", max_trials=1, parallel=1, max_failed=1, seed=None,
        )  # fmt: skip
        made = self.store.create(
            STUDY, org="acme", name="grid", owner="ann", spec=spec,
            status=StudyStatus(phase=phase), now=OLD,
        )  # fmt: skip
        return ParentRef(STUDY.name, made.key.uid)

    def with_point(self, uid: str) -> str:
        self.store.metrics.append(
            uid, ReportFile(1, "master-0"), [Value("loss", 1, 0, 0.5)],
            before=NOT_READ, after=FilePosition("file", 1), limits=MetricLimits(),
        )  # fmt: skip
        return uid

    def keeps(self, uid: str) -> bool:
        (series,) = self.store.metrics.series(uid)
        assert (series.count, series.last) == (1, 0.5)
        return not series.removed


def ended(at: object, phase: Phase = Phase.SUCCEEDED) -> WorkloadStatus:
    return WorkloadStatus(phase=phase, attempt=1, finished_at=at)  # type: ignore[arg-type]


def test_points_of_jobs_that_ended_long_ago_go() -> None:
    place = Place()
    old, recent = place.job("old", ended(OLD)), place.job("recent", ended(RECENT))
    running = place.job("running", WorkloadStatus(phase=Phase.RUNNING, attempt=1))
    place.retention.expire()
    place.retention.expire()
    assert [place.keeps(uid) for uid in (old, recent, running)] == [False, True, True]
    assert [event.reason for event in place.store.events(old)] == ["MetricsExpired"]
    assert not place.store.events(recent)


def test_points_of_runs_without_a_job_go() -> None:
    place = Place()
    old = place.run("a", RunState.FINISHED, int(OLD.timestamp() * 1000))
    going_on = place.run("b", RunState.RUNNING, None)
    imported = place.run("c", RunState.FINISHED, 0, made_at=RECENT)
    place.retention.expire()
    assert [place.keeps(uid) for uid in (old, going_on, imported)] == [False, True, True]


@pytest.mark.parametrize("phase", [StudyPhase.RUNNING, StudyPhase.COMPLETED])
def test_a_study_that_goes_on_keeps_the_points_of_its_trials(phase: StudyPhase) -> None:
    place = Place()
    trial = place.job("grid-hp-1", ended(OLD), place.study(phase))
    place.retention.expire()
    assert place.keeps(trial) is (not phase.over)


def test_by_default_points_stay() -> None:
    place = Place()
    old = place.job("old", ended(OLD))
    PointRetention(place.store, lambda: NOW, 0).expire()
    assert place.keeps(old)


def test_a_run_that_is_logged_to_all_the_time_holds_up_no_other_one() -> None:
    place = Place()
    long_ago = int(OLD.timestamp() * 1000)
    busy = place.run("a", RunState.FINISHED, long_ago)
    other = place.run("b", RunState.FINISHED, long_ago)
    steps: list[int] = []

    def log() -> bool:  # clients may log to a run that ended
        steps.append(len(steps) + 2)
        batch = LogBatch([Value("late", steps[-1], 0, 1.0)])
        place.store.tracking.log(busy, batch, limits=TrackingLimits(), metric_limits=MetricLimits())
        return len(steps) > 20

    place.retention.expire(log)
    assert len(steps) < 10
    assert not place.keeps(other)

"""Reports of jobs become points: each once, whatever happens in between."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.quotas import UNLIMITED, QuotaSpec
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.metrics.collection import MetricCollection

TASK = "master-0"


class Place:
    """A job that runs on a fake engine, and a collection that may be dropped at any time."""

    def __init__(self, settings: MetricSettings = MetricSettings()) -> None:  # noqa: B008
        self.engine = FakeEngine()
        self.store = MemoryStateStore()
        self.settings = settings
        self.quota = QuotaSpec(points=UNLIMITED)
        self.restart()
        self.job: TrainJobRecord = self.store.create(
            TRAIN_JOB,
            org="acme",
            name="linear",
            owner="ann",
            spec=job_specs.from_wire(TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz")),
            status=WorkloadStatus(phase=Phase.RUNNING, attempt=1),
            now=system_clock(),
            run=NewRun(params={"epochs": "5"}),
        )

    def restart(self) -> None:
        limits = TrackingSettings(params_per_run=3)
        self.collection = MetricCollection(
            self.engine, self.store, system_clock, self.settings, limits,
            quota_of=lambda _org: self.quota,
        )  # fmt: skip

    def begin_attempt(self, attempt: int) -> None:
        self.job = replace(self.job, status=replace(self.job.status, attempt=attempt))

    def report(self, *steps: int, value: float = 1.0, name: str = "loss") -> None:
        entries = [{"step": step, "time": 1.0, "metrics": {name: value}} for step in steps]
        lines = b"".join(b"\n" + json.dumps(entry).encode() + b"\n" for entry in entries)
        self.write(lines)

    def write(self, lines: bytes) -> None:
        key = GangKey(self.job.key.uid, self.job.status.attempt)
        self.engine.report_metrics(key, TASK, lines)

    def say(self, **params: str) -> None:
        self.write(json.dumps({"time": 1.0, "params": params}).encode() + b"\n")

    def params(self) -> dict[str, str]:
        uid = self.job.key.uid
        return dict(self.store.tracking.params([uid])[uid])

    def steps(self, *, earlier: bool = False) -> list[int]:
        found = self.store.metrics.series(self.job.key.uid)
        point_range = PointRange(most=100_000, earlier=earlier)
        return [
            point.step
            for each in found
            for point in self.store.metrics.points(each.number, point_range)
        ]

    def reasons(self) -> list[str]:
        return [str(event.reason) for event in self.store.events(self.job.key.uid)]


def test_what_is_new_is_read() -> None:
    place = Place()
    assert place.collection.collect(place.job)
    place.report(1, 2)
    assert place.collection.collect(place.job)
    place.report(3)
    place.restart()
    assert place.collection.collect(place.job)
    assert place.steps() == [1, 2, 3]


def test_one_that_another_collector_overtakes_is_not_at_the_end() -> None:
    """The end of a job is committed once its last look says that all is collected."""
    place = Place()
    place.report(1)
    place.collection.collect(place.job)
    place.report(2)
    read = place.engine.read_metrics
    other = MetricCollection(place.engine, place.store, system_clock, place.settings)

    def read_and_be_overtaken(*args: Any, **options: Any) -> Any:
        if not options["end"]:  # it only asks whether there is a file
            return read(*args, **options)
        place.engine.read_metrics = read  # type: ignore[method-assign]
        piece = read(*args, **options)
        assert other.collect(place.job)
        place.report(3)  # the other one does not come back for it
        return piece

    place.engine.read_metrics = read_and_be_overtaken  # type: ignore[method-assign]
    assert not place.collection.collect(place.job)
    assert place.collection.collect(place.job)
    assert place.steps() == [1, 2, 3]


def test_parameters_belong_to_the_run_and_keep_their_first_value() -> None:
    place = Place()
    place.say(lr="0.1", epochs="6")
    place.report(1)
    place.collection.collect(place.job)
    place.say(lr="0.2")
    place.collection.collect(place.job)
    assert place.params() == {"epochs": "5", "lr": "0.1"}
    assert place.steps() == [1]
    warned = [event.message for event in place.store.events(place.job.key.uid)]
    assert sorted(warned) == [
        "parameter epochs is 5 and stays so; 6 was reported",
        "parameter lr is 0.1 and stays so; 0.2 was reported",
    ]
    place.say(**{"../a": "x"})
    place.say(a="1", b="2")
    place.collection.collect(place.job)
    place.collection.collect(place.job)
    assert place.params() == {"epochs": "5", "lr": "0.1"}
    assert len(place.reasons()) == 4


def test_a_parameter_that_is_read_again_after_a_kill_is_no_other_one() -> None:
    place = Place()
    place.say(lr="0.1")
    place.store.fail_writes(None)
    append = place.store.metrics.append
    place.store.metrics.append = _killed  # type: ignore[method-assign]
    with contextlib.suppress(Unavailable):
        place.collection.collect(place.job)
    place.store.metrics.append = append  # type: ignore[method-assign]
    place.restart()
    place.collection.collect(place.job)
    assert place.params() == {"epochs": "5", "lr": "0.1"}
    assert place.reasons() == []


def _killed(*_: object, **__: object) -> None:
    raise Unavailable("killed")


def test_half_a_line_waits_for_its_end() -> None:
    place = Place()
    place.write(b'{"step": 1, "time": 1, "metrics"')
    place.collection.collect(place.job)
    assert place.steps() == []
    place.write(b': {"loss": 1}}\n')
    place.collection.collect(place.job)
    assert place.steps() == [1]


def test_the_rest_of_an_attempt_comes_before_the_next_one() -> None:
    place = Place()
    place.report(1)
    place.collection.collect(place.job)
    place.report(2, 3)
    place.begin_attempt(2)
    place.report(2)
    place.collection.collect(place.job)
    assert place.steps() == [1, 2]
    assert place.steps(earlier=True) == [2, 3]


@given(st.lists(st.sampled_from(["report", "collect", "kill before", "kill after"]), max_size=30))
@settings(deadline=None)
def test_no_point_is_lost_or_kept_twice(actions: list[str]) -> None:
    place, step = Place(), 0
    for action in actions:
        if action == "report":
            step += 1
            place.report(step)
            continue
        if action == "kill before":
            place.store.fail_writes(Unavailable("killed"))
            with contextlib.suppress(Unavailable):
                place.collection.collect(place.job)
            place.store.fail_writes(None)
        else:
            place.collection.collect(place.job)
        if action != "collect":
            place.restart()
    place.collection.collect(place.job)
    assert place.steps() == list(range(1, step + 1))


def test_what_is_refused_is_named_once() -> None:
    place = Place(MetricSettings(series_per_job=1))
    for name in ("loss", "accuracy", "accuracy"):
        place.report(1, name=name)
        place.collection.collect(place.job)
        place.restart()
    (event,) = place.store.events(place.job.key.uid)
    assert event.reason == "MetricsRefused"
    assert event.message == "series 'accuracy' is not kept: a job has at most 1 series"


def test_points_beyond_the_quota_of_the_organisation_are_refused_and_told_once() -> None:
    place = Place()
    full = "the organisation keeps at most 3 points (its quota of points)"
    place.quota = QuotaSpec(points=3)
    for step in range(1, 6):
        place.restart()
        place.report(step)
        place.collection.collect(place.job)
    assert place.steps() == [1, 2, 3]
    (event,) = place.store.events(place.job.key.uid)
    assert (event.reason, event.message) == (
        "MetricsRefused",
        f"points of 'loss' are not kept: {full}",
    )
    place.quota = QuotaSpec(points=UNLIMITED)
    place.restart()
    place.report(6)
    place.collection.collect(place.job)
    assert place.steps() == [1, 2, 3, 6]


def test_the_first_nan_of_a_metric_is_told_once() -> None:
    place = Place()
    place.report(1, 2)
    place.collection.collect(place.job)
    for steps in ((3, 4), (5,)):
        place.report(*steps, value=math.nan)
        place.collection.collect(place.job)
        place.restart()
    (event,) = place.store.events(place.job.key.uid)
    assert (event.reason, event.message) == (
        "MetricIsNaN",
        "loss is NaN since step 3 (master-0)",
    )


def test_a_file_that_is_too_long_is_read_to_its_limit() -> None:
    place = Place(MetricSettings(file_bytes=1000))
    place.report(*range(100))
    for _ in range(3):
        place.collection.collect(place.job)
    assert place.steps() == list(range(len(place.steps())))
    assert 0 < len(place.steps()) < 100
    assert place.reasons() == ["MetricsRefused"]


def test_a_job_that_is_gone_is_no_error() -> None:
    place = Place()
    place.report(1)
    place.store.delete(TRAIN_JOB, place.job.key.uid, fence=None)
    assert place.collection.collect(place.job)


def test_an_engine_without_reports_has_none() -> None:
    place = Place()
    collection = MetricCollection(object(), place.store, system_clock, place.settings)
    assert collection.collect(place.job)


@pytest.mark.parametrize("line", [b"\0" * 500, b"x" * 500 + b"\n", b"[]\n"])
def test_what_is_no_report_is_passed_over(line: bytes) -> None:
    place = Place()
    place.write(line)
    place.report(4)
    place.collection.collect(place.job)
    assert place.steps() == [4]

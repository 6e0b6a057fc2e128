"""Event files and logs of jobs become points: each once, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.tracking.event_files import EventFileReader, Session
from cloud_ml.tracking.log_patterns import compile_pattern, read_lines
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.metrics.file_collection import FileCollection
from cloud_ml.usecases.metrics.parsing import (
    EventPiece,
    EventSession,
    LogPiece,
    NoParser,
    PatternProblem,
    UnreadableFile,
)
from support.event_files import EVENT_WRITER

WRITER: dict[str, Callable[..., bytes]] = {}
exec(EVENT_WRITER, WRITER)  # as a trainer does
TASK = "master-0"
FILE = "work/logs/events.out.tfevents.1.host"


class Parser:
    """What the collector does, in this process; ``dies_of`` is what it does not survive."""

    def __init__(self, piece: int = 1 << 19) -> None:
        self.piece = piece
        self.dies_of = b"\0never"
        self.missing = False

    def read_events(self, descriptor: int, offset: int, session: EventSession) -> EventPiece:
        if self.missing:
            raise NoParser("there is none")
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, self.piece, offset)
        if self.dies_of in data:
            raise UnreadableFile("it dies of it")
        read = EventFileReader().read(
            data,
            offset=offset,
            size=size,
            session=Session(0, session.number, session.purge),
            read_at=lambda at, most: os.pread(descriptor, most, at),
        )
        values = []
        for at, (tag, step, moment, value) in enumerate(read.scalars):
            here = [each for each in read.sessions if each.begin <= at][-1]
            values.append(Value(tag, step, moment, value, here.number, here.purge))
        last = read.sessions[-1]
        tags = [SummaryTag(*tag) for tag in read.tags]
        after = EventSession(last.number, last.purge)
        return EventPiece(values, read.taken, after, read.broken, tags)

    def read_log(
        self,
        descriptor: int,
        offset: int,
        left: int,
        *,
        patterns: Sequence[str],
        steps: Mapping[str, int],
        at: int,
        final: bool,
    ) -> LogPiece:
        data = os.pread(descriptor, min(left, self.piece), offset)
        compiled = [compile_pattern(one) for one in patterns]
        read = read_lines(data, compiled, steps, more=left > len(data), final=final)
        values = [Value(name, step, at, value) for name, step, value in read.points]
        return LogPiece(values, read.taken, read.steps)

    def check_patterns(
        self, patterns: Sequence[str], *, search: bool = False
    ) -> PatternProblem | None:
        raise NotImplementedError


class Place:
    """A job that runs on a fake engine, and a collection that may be dropped at any time."""

    def __init__(self, settings: MetricSettings = MetricSettings(), **fields: object) -> None:  # noqa: B008
        self.engine = FakeEngine()
        self.store = MemoryStateStore()
        self.settings = settings
        self.parser = Parser()
        self.restart()
        job = TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz", **fields)  # type: ignore[arg-type]
        self.job: TrainJobRecord = self.store.create(
            TRAIN_JOB,
            org="acme",
            name="linear",
            owner="ann",
            spec=job_specs.from_wire(job),
            status=WorkloadStatus(phase=Phase.RUNNING, attempt=1),
            now=system_clock(),
        )

    def restart(self) -> None:
        self.collection = FileCollection(
            self.engine,
            self.parser,
            self.store,
            owns=lambda org, bucket: (org, bucket) == ("acme", "own"),
            clock=system_clock,
            settings=self.settings,
        )

    def write(self, *records: bytes, path: str = FILE) -> None:
        self.engine.write_event_file(self.job.key.uid, path, b"".join(records))

    def scalars(self, *steps: int, value: float = 1.0, tag: str = "loss", path: str = FILE) -> None:
        self.write(*(WRITER["scalar"](tag, value, step) for step in steps), path=path)

    def collect(self, *, over: bool = False) -> None:
        while not self.collection.collect(self.job, over=over)[0]:
            pass

    def points(self, name: str = "loss", *, earlier: bool = False) -> list[tuple[int, float]]:
        point_range = PointRange(most=100_000, earlier=earlier)
        return [
            (point.step, point.value)
            for each in self.store.metrics.series(self.job.key.uid)
            if each.name == name
            for point in self.store.metrics.points(each.number, point_range)
        ]

    def names(self) -> list[str]:
        return [one.name for one in self.store.metrics.series(self.job.key.uid)]

    def tags(self) -> list[tuple[str, str, int, int]]:
        found = self.store.metrics.tags(self.job.key.uid)
        return [(tag.name, tag.kind, tag.count, tag.last_step) for tag in found]

    def event_rows(self) -> list[tuple[str, str]]:
        return [(str(event.reason), event.message) for event in self.store.events(self.job.key.uid)]


def test_what_is_new_is_read() -> None:
    place = Place()
    assert place.collection.collect(place.job) == (True, False)
    place.scalars(1, 2)
    assert place.collection.collect(place.job) == (True, True)
    place.scalars(3)
    place.restart()
    place.collect()
    assert place.points() == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_a_later_file_replaces_the_steps_that_it_repeats() -> None:
    place = Place()
    place.scalars(1, 2, 3)
    place.collect()
    place.job = replace(place.job, status=replace(place.job.status, attempt=2))
    place.scalars(2, 3, value=2.0, path="work/runs/Nov25_10-10-10_h/events.out.tfevents.2.host")
    place.collect()
    assert place.points() == [(1, 1.0), (2, 2.0), (3, 2.0)]
    assert place.points(earlier=True) == [(2, 1.0), (3, 1.0)]
    place.scalars(4, path=FILE)  # a late word of the first one
    place.collect()
    assert place.points() == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_files_that_are_seen_at_once_follow_each_other_too() -> None:
    place = Place()
    place.scalars(2, 3, value=2.0, path="work/logs/events.out.tfevents.2.host")
    place.scalars(1, 2, 3)
    place.collect()
    assert place.points() == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_a_program_that_goes_on_takes_away_what_was_beyond_its_step() -> None:
    place = Place()
    place.scalars(1, 2, 3, 4)
    place.write(WRITER["start"](2))
    place.scalars(4, value=2.0)
    place.collect()
    assert place.points() == [(1, 1.0), (4, 2.0)]


def test_a_file_of_the_same_name_is_another_one() -> None:
    place = Place()
    place.scalars(1, 2, 3)
    place.collect()
    place.engine.machine.event_files[place.job.key.uid].clear()
    place.scalars(2, value=2.0)
    place.collect()
    assert place.points() == [(1, 1.0), (2, 2.0)]


def test_a_file_that_is_written_anew_in_its_place_and_is_longer_is_another_one() -> None:
    place = Place()
    place.scalars(1, 2, 3)
    place.collect()
    place.engine.machine.event_files[place.job.key.uid].clear()
    place.scalars(2, 3, 4, 5, value=2.0)
    place.restart()
    place.collect()
    assert place.points() == [(1, 1.0), *((step, 2.0) for step in (2, 3, 4, 5))]
    place.scalars(6, value=2.0)
    place.collect()
    assert place.points()[-2:] == [(5, 2.0), (6, 2.0)]
    assert place.event_rows() == []


def test_only_own_buckets_are_read() -> None:
    for bucket, expected in (("own", ["eval/loss"]), ("others", [])):
        place = Place(output_path=f"fds://{bucket}/out/")
        for each in ("own", "others"):
            place.scalars(1, path=f"fds://{each}/out/eval/events.out.tfevents.1.h")
        place.collect()
        assert place.names() == expected


def test_a_damaged_file_is_told_once_and_others_go_on() -> None:
    place = Place()
    place.scalars(1)
    place.write(bytes(100))
    place.scalars(5, tag="other", path="work/events.out.tfevents.2.h")
    for _ in range(3):
        place.collect()
        place.restart()
    assert place.points() == [(1, 1.0)]
    assert place.points("other") == [(5, 1.0)]
    ((reason, message),) = place.event_rows()
    assert reason == "MetricFileUnreadable"
    assert message.startswith(f"{FILE}: the head of the record at byte ")


def test_a_file_that_kills_the_parser_is_told_once_and_others_go_on() -> None:
    place = Place()
    place.scalars(1)
    place.collect()
    place.parser.dies_of = b"killer"
    place.scalars(2, tag="killer")
    place.scalars(5, tag="other", path="work/events.out.tfevents.2.h")
    for _ in range(3):
        place.collect()
        place.restart()
    assert (place.points(), place.points("other")) == ([(1, 1.0)], [(5, 1.0)])
    ((reason, message),) = place.event_rows()
    assert reason == "MetricFileUnreadable"
    assert message.endswith("on is not read: it dies of it")


def test_a_job_ends_without_a_parser_and_is_told() -> None:
    place = Place()
    place.scalars(1)
    place.parser.missing = True
    assert place.collection.collect(place.job) == (True, False)
    assert place.event_rows() == []
    assert place.collection.collect(place.job, over=True) == (True, False)
    assert place.event_rows() == [
        ("MetricFileUnreadable", "event files and logs are not read: there is none")
    ]
    place.parser.missing = False
    place.collect()
    assert place.points() == [(1, 1.0)]


def test_the_first_nan_is_told_once() -> None:
    place = Place()
    place.scalars(1)
    place.scalars(2, 3, value=math.nan)
    place.collect()
    place.scalars(4, value=math.nan)
    place.collect()
    assert place.event_rows() == [
        ("MetricIsNaN", "loss is NaN since step 2 (master-0, event file)")
    ]


def test_tags_of_summaries_are_listed_by_folder() -> None:
    place, write = Place(), WRITER["summary"]
    place.write(write("weights", 5, b"", 1), write("weights", 4, bytes(100_000), 2))
    place.write(write("a", 8, b"words", 3, plugin="text"), write("a", 8, b"words", 4))
    place.write(write("b", 8, b"words", 4), path="work/logs/eval/events.out.tfevents.2.host")
    place.collect()
    expected = [
        ("a", "text", 2, 4),
        ("eval/b", "other", 1, 4),
        ("weights", "histogram", 1, 1),
        ("weights", "image", 1, 2),
    ]
    assert place.tags() == expected
    assert not place.names()
    assert not place.event_rows()


def test_a_restart_with_purge_step_goes_on_with_the_tags() -> None:
    place = Place()
    place.write(*(WRITER["summary"]("weights", 5, b"", step) for step in range(10)))
    place.collect()
    assert place.tags() == [("weights", "histogram", 10, 9)]
    again = (WRITER["summary"]("weights", 5, b"", step) for step in (5, 6))
    place.write(WRITER["start"](5), *again)
    place.collect()
    # The clock of these files is the step: the newest is that of step 9.
    assert place.tags() == [("weights", "histogram", 12, 9)]


def test_a_million_tags_cost_one_refusal() -> None:
    place = Place(MetricSettings(series_per_job=3))
    for number in range(2000):
        place.write(WRITER["summary"](f"tag{number}", 5, b"", 1))
    place.scalars(1)
    place.collect()
    assert [tag[0] for tag in place.tags()] == ["tag0", "tag1", "tag2"]
    refusal = ("MetricsRefused", "tag 'tag3' is not listed: a job has at most 3 tags")
    assert place.event_rows() == [refusal]
    assert place.names() == ["loss"]


def test_a_million_names_cost_one_refusal() -> None:
    place = Place(MetricSettings(series_per_job=3))
    for number in range(2000):
        place.scalars(1, tag=f"tag{number}")
    place.collect()
    assert place.names() == ["tag0", "tag1", "tag2"]
    ((reason, message),) = place.event_rows()
    assert (reason, message) == (
        "MetricsRefused",
        "series 'tag3' is not kept: a job has at most 3 series",
    )


def test_files_and_bytes_beyond_the_limits_are_not_read() -> None:
    place = Place(MetricSettings(event_files_per_job=2, file_bytes=1000))
    for number in range(4):
        place.scalars(1, tag=f"tag{number}", path=f"work/events.out.tfevents.{number}.h")
    place.scalars(*range(2, 100), tag="tag0", path="work/events.out.tfevents.0.h")
    place.parser.piece = 500
    for _ in range(3):
        place.collect()
    assert place.names() == ["tag0", "tag1"]
    assert 10 < len(place.points("tag0")) < 40
    assert sorted(place.event_rows()) == [
        (
            "MetricFileUnreadable",
            "work/events.out.tfevents.0.h: points beyond 1000 bytes are not kept",
        ),
        ("MetricsRefused", "some event files are not read: there are more than 2"),
    ]


def test_logs_are_read_to_their_end() -> None:
    place = Place(metric_patterns=["keras"])
    key = GangKey(place.job.key.uid, 1)
    place.engine.machine.logs[key, TASK] = b"Epoch 1/2\n9/9 - 2s - loss: 3\n"
    place.collect()
    place.engine.machine.logs[key, TASK] += b"Epoch 2/2\n"
    place.collect()
    place.restart()
    place.engine.machine.logs[key, TASK] += b"9/9 - 2s - loss: 2"
    place.collect()
    assert place.points() == [(1, 3.0)]
    place.collect(over=True)
    assert place.points() == [(1, 3.0), (2, 2.0)]


def test_a_later_attempt_replaces_points_of_the_log() -> None:
    place = Place(metric_patterns=["epoch"])
    lines = b"Epoch: 1, loss: 1\nEpoch: 2, loss: 1\n"
    place.engine.machine.logs[GangKey(place.job.key.uid, 1), TASK] = lines
    place.engine.machine.logs[GangKey(place.job.key.uid, 2), TASK] = b"Epoch: 2, loss: 2\n"
    place.job = replace(place.job, status=replace(place.job.status, attempt=2))
    place.collect()
    assert place.points() == [(1, 1.0), (2, 2.0)]


def test_sources_have_series_of_their_own() -> None:
    place = Place(metric_patterns=["epoch"])
    place.engine.machine.logs[GangKey(place.job.key.uid, 1), TASK] = b"Epoch: 1, loss: 1\n"
    place.scalars(1)
    place.collect()
    assert [one.source for one in place.store.metrics.series(place.job.key.uid)] == [
        "event_file",
        "log",
    ]


@given(st.lists(st.sampled_from(["write", "collect", "kill before", "kill after"]), max_size=30))
@settings(deadline=None, max_examples=50)
def test_no_point_is_lost_or_kept_twice(actions: list[str]) -> None:
    place, step = Place(metric_patterns=["epoch"]), 0
    place.parser.piece = 100
    key = (GangKey(place.job.key.uid, 1), TASK)
    for action in actions:
        if action == "write":
            step += 1
            place.scalars(step)
            place.write(WRITER["summary"]("weights", 5, b"x" * 20, step))
            logs = place.engine.machine.logs
            logs[key] = logs.get(key, b"") + b"Epoch: %d, logged: 1\n" % step
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
    place.collect(over=True)
    expected = [(each, 1.0) for each in range(1, step + 1)]
    assert place.points() == expected
    assert place.points("logged") == expected
    assert place.tags() == ([("weights", "histogram", step, step)] if step else [])


def test_what_comes_before_the_folder_of_a_new_file_is_watched_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place()
    place.scalars(1)
    read_events = place.parser.read_events

    def read_late(descriptor: int, offset: int, session: EventSession) -> EventPiece:
        piece = read_events(descriptor, offset, session)
        if not piece.taken and place.points() == [(1, 1.0)]:
            place.scalars(2)  # when all that was found is read
        return piece

    monkeypatch.setattr(place.parser, "read_events", read_late)
    place.collection.collect(place.job)
    assert place.points() == [(1, 1.0), (2, 1.0)]


@pytest.mark.anyio
async def test_a_file_that_was_empty_when_it_was_found_is_heard_of_when_it_is_written() -> None:
    place = Place()
    place.write(path="work/runs/events.out.tfevents.1.host")
    place.collect()
    changes = place.collection.changes()
    assert changes is not None
    place.scalars(1, path="work/runs/events.out.tfevents.1.host")
    async with asyncio.timeout(5):
        assert await anext(changes) == place.job.key.uid


@pytest.mark.anyio
async def test_a_file_that_a_server_before_has_read_is_heard_of_when_it_grows() -> None:
    place = Place()
    place.scalars(1, path="work/runs/events.out.tfevents.1.host")
    place.collect()
    place.restart()
    place.collect()
    changes = place.collection.changes()
    assert changes is not None
    place.scalars(2, path="work/runs/events.out.tfevents.1.host")
    async with asyncio.timeout(5):
        assert await anext(changes) == place.job.key.uid


@pytest.mark.anyio
async def test_files_that_stay_empty_take_no_watch_from_one_that_grows() -> None:
    place = Place()
    for number in range(10):
        place.write(path=f"work/empty-{number}/events.out.tfevents.1.host")
    place.scalars(1, path="work/runs/events.out.tfevents.1.host")
    place.collect()
    for number in range(10, 20):
        place.write(path=f"work/empty-{number}/events.out.tfevents.1.host")
    place.collect()
    changes = place.collection.changes()
    assert changes is not None
    place.scalars(2, path="work/runs/events.out.tfevents.1.host")
    async with asyncio.timeout(5):
        assert await anext(changes) == place.job.key.uid

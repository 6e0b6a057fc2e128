"""Points of runs: none is lost, none is there twice, and lists look at none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import (
    EVENT_FILES,
    LOG,
    REPORTS,
    MetricLimits,
    Series,
    TaskStart,
)
from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.errors import NotFound, StaleRevision
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import (
    NOT_READ,
    Appended,
    FilePosition,
    MetricStore,
    PointRange,
    ReportFile,
)
from cloud_ml.testing.state.samples import SAMPLE, make

LIMITS = MetricLimits()
EARLIER = PointRange(earlier=True)
QUOTA_IS_FULL = (
    "points of 'loss' are not kept: the organisation keeps at most {} points (its quota of points)"
)


class _Run:
    """A run that reports; its files are read on with each call."""

    def __init__(self, store: StateStore, name: str = "red") -> None:
        self.uid = make(store, name).key.uid
        self.metrics: MetricStore = store.metrics

    def report(
        self,
        values: Sequence[Value],
        attempt: int = 1,
        task: str = "master-0",
        limits: MetricLimits = LIMITS,
    ) -> Appended:
        file = ReportFile(attempt, task)
        before = self.metrics.positions(self.uid).get(file, NOT_READ)
        after = FilePosition("file", before.offset + 10)
        return self.metrics.append(
            self.uid, file, values, before=before, after=after, limits=limits
        )

    def summarise(self, *tags: SummaryTag, limits: MetricLimits = LIMITS) -> Appended:
        file = ReportFile(1, "master-0", EVENT_FILES, "a")
        before = self.metrics.positions(self.uid).get(file, NOT_READ)
        after = FilePosition("file", before.offset + 10)
        return self.metrics.append(
            self.uid, file, [], before=before, after=after, limits=limits, tags=tags
        )

    def one(self) -> Series:
        (found,) = self.metrics.series(self.uid)
        return found

    def points(
        self,
        point_range: PointRange = PointRange(),  # noqa: B008
    ) -> list[tuple[int, float]]:
        found = self.metrics.points(self.one().number, point_range)
        return [(point.step, point.value) for point in found]


def losses(steps: Sequence[int], value: float = 1.0, *, restart: int = 0) -> list[Value]:
    return [Value("loss", step, 1000 * step, value, restart) for step in steps]


class MetricContract:
    def test_points_are_kept_over_chunks(self, store: StateStore) -> None:
        run = _Run(store)
        expected = []
        for begin in range(0, 3 * CHUNK_POINTS, 700):
            run.report(losses(range(begin, begin + 700), 0.5 * begin))
            expected += [(step, 0.5 * begin) for step in range(begin, begin + 700)]
        assert run.points(PointRange(most=10_000)) == expected
        assert run.one().count == len(expected)

    def test_a_row_says_what_lists_show(self, store: StateStore) -> None:
        run = _Run(store)
        values = [3.0, math.nan, -math.inf, 2.0]
        run.report([Value("loss", step, 5 + step, value) for step, value in enumerate(values)])
        number, chunks = run.one().number, run.one().chunks
        assert run.one() == Series(
            number, "master-0", "loss", TaskStart(1),
            count=4, first=3.0, last=2.0, min=-math.inf, max=3.0, last_step=3, last_at=8, nan=1,
            chunks=chunks,
        )  # fmt: skip
        found = run.metrics.points(number, PointRange())
        assert repr(found) == repr(
            [Point(step, 5 + step, value) for step, value in enumerate(values)]
        )

    def test_what_is_no_number_is_no_extreme(self, store: StateStore) -> None:
        run = _Run(store)
        run.report([Value("loss", 0, 0, math.nan)])
        row = run.one()
        assert (row.min, row.max, row.nan, row.count) == (None, None, 1, 1)
        assert math.isnan(row.first)
        assert math.isnan(row.last)

    def test_values_without_a_step_follow_each_other(self, store: StateStore) -> None:
        run = _Run(store)
        for value in (0.5, 0.25, 0.125):
            run.report([Value("loss", None, 0, value)])
        assert run.points() == [(0, 0.5), (1, 0.25), (2, 0.125)]

    def test_a_file_is_read_once(self, store: StateStore) -> None:
        run, file = _Run(store), ReportFile(1, "master-0")
        run.report(losses([1]))
        after = FilePosition("file", 99)
        with pytest.raises(StaleRevision):
            run.metrics.append(
                run.uid, file, losses([2]), before=NOT_READ, after=after, limits=LIMITS
            )
        assert run.points() == [(1, 1.0)]
        assert run.metrics.positions(run.uid) == {file: FilePosition("file", 10)}

    def test_sources_have_series_and_files_of_their_own(self, store: StateStore) -> None:
        run = _Run(store)
        files = [
            ReportFile(1, "master-0"),
            ReportFile(1, "master-0", EVENT_FILES, "work/a"),
            ReportFile(1, "master-0", EVENT_FILES, "work/b"),
            ReportFile(1, "master-0", LOG),
        ]
        for number, file in enumerate(files):
            after = FilePosition(f"file {number}", 10, f'{{"number": {number}}}')
            run.metrics.append(
                run.uid, file, losses([number]), before=NOT_READ, after=after, limits=LIMITS
            )
        assert [(one.source, one.count) for one in run.metrics.series(run.uid)] == [
            (EVENT_FILES, 2),
            (LOG, 1),
            (REPORTS, 1),
        ]
        assert run.metrics.positions(run.uid) == {
            file: FilePosition(f"file {number}", 10, f'{{"number": {number}}}')
            for number, file in enumerate(files)
        }

    def test_a_start_may_take_away_more_than_it_repeats(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses(range(10), 1.0))
        run.report([Value("loss", 8, 0, 2.0, restart=1, purge=5)])
        run.report([Value("loss", 9, 0, 2.0, restart=1, purge=5)])
        expected = [(step, 1.0) for step in range(5)] + [(8, 2.0), (9, 2.0)]
        assert run.points() == expected
        assert run.points(EARLIER) == [(step, 1.0) for step in range(5, 10)]

    def test_a_later_attempt_replaces_the_steps_that_it_repeats(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses(range(3000), 1.0))
        run.report(losses(range(2000, 2100), 2.0), attempt=2)
        expected = [(step, 1.0) for step in range(2000)]
        expected += [(step, 2.0) for step in range(2000, 2100)]
        assert run.points(PointRange(most=10_000)) == expected
        earlier = run.points(PointRange(most=10_000, earlier=True))
        assert earlier == [(step, 1.0) for step in range(2000, 3000)]
        row = run.one()
        assert (row.count, row.earlier, row.min, row.max) == (2100, 1000, 1.0, 2.0)
        assert (row.first, row.last, row.last_step) == (1.0, 2.0, 2099)
        assert row.start == TaskStart(2)

    def test_an_attempt_that_begins_anew_replaces_everything(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses(range(5), 9.0))
        run.report(losses(range(2), 1.0), attempt=2)
        assert run.points() == [(0, 1.0), (1, 1.0)]
        assert run.points(EARLIER) == [(step, 9.0) for step in range(5)]
        assert (run.one().count, run.one().max) == (2, 1.0)

    def test_a_restarted_task_does_so_too(self, store: StateStore) -> None:
        run = _Run(store)
        run.report([*losses(range(5)), *losses([3, 4], 2.0, restart=1)])
        assert run.points() == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]
        assert run.points(EARLIER) == [(3, 1.0), (4, 1.0)]

    def test_late_words_of_an_attempt_change_nothing(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses([5]), attempt=2)
        run.report(losses([5, 6], 3.0), attempt=1)
        assert run.points() == [(5, 1.0)]
        assert run.points(EARLIER) == [(5, 3.0), (6, 3.0)]

    def test_tasks_have_series_of_their_own(self, store: StateStore) -> None:
        run = _Run(store)
        for task in ("worker-1", "worker-0"):
            run.report(losses([1]), task=task)
        found = run.metrics.series(run.uid)
        assert [(each.task, each.name) for each in found] == [
            ("worker-0", "loss"),
            ("worker-1", "loss"),
        ]

    def test_a_range_of_steps(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses(range(4000)))
        found = run.points(PointRange(low=1500, high=1502))
        assert found == [(1500, 1.0), (1501, 1.0), (1502, 1.0)]
        assert run.points(PointRange(low=4000)) == []

    def test_of_many_points_the_extremes_and_ends_are_shown(self, store: StateStore) -> None:
        run, count = _Run(store), 60_000
        values = [float(step % 7) for step in range(count)]
        values[31_234] = 100.0
        run.report([Value("loss", step, 0, value) for step, value in enumerate(values)])
        for low, high in [(0, count), (1_000, 50_000), (31_000, 33_000)]:
            found = run.points(PointRange(low=low, high=high, most=50))
            assert len(found) <= 50
            assert (31_234, 100.0) in found
            assert found[0] == (low, values[low])
            assert found[-1] == (min(high, count - 1), values[min(high, count - 1)])

    def test_too_many_series_are_refused_by_name(self, store: StateStore) -> None:
        run, limits = _Run(store), MetricLimits(series=2)
        values = [Value(name, 0, 0, 1.0) for name in ("a", "b", "c")]
        first = run.report(values, limits=limits)
        assert first == Appended(["series 'c' is not kept: a job has at most 2 series"], first=True)
        assert not run.report(values, limits=limits).first
        assert [each.name for each in run.metrics.series(run.uid)] == ["a", "b"]

    def test_too_many_points_are_refused_by_name(self, store: StateStore) -> None:
        run = _Run(store)
        found = run.report(losses(range(5)), limits=MetricLimits(points=3))
        assert found.refused == ["points of 'loss' are not kept: a job has at most 3 points"]
        assert [step for step, _ in run.points()] == [0, 1, 2]

    def test_tags_of_summaries_are_counted(self, store: StateStore) -> None:
        run = _Run(store)
        run.summarise(
            SummaryTag("weights", "histogram", 2, 1, 20), SummaryTag("a", "image", 1, 3, 5)
        )
        run.summarise(
            SummaryTag("weights", "histogram", 1, 0, 30), SummaryTag("a", "text", 1, 3, 5)
        )
        run.summarise(SummaryTag("weights", "", 4, 9, 10), SummaryTag("é", "", 1, -3, 0))
        assert run.metrics.tags(run.uid) == [
            SummaryTag("a", "image", 1, 3, 5),
            SummaryTag("a", "text", 1, 3, 5),
            SummaryTag("weights", "histogram", 7, 0, 30),
            SummaryTag("é", "other", 1, -3, 0),
        ]
        assert not run.metrics.series(run.uid)
        assert not run.metrics.tags("0" * 32)

    def test_tags_and_positions_are_one(self, store: StateStore) -> None:
        run = _Run(store)
        run.summarise(SummaryTag("a", "image", 1, 3, 5))
        file, tag = ReportFile(1, "master-0", EVENT_FILES, "a"), SummaryTag("a", "image", 1, 4, 6)
        with pytest.raises(StaleRevision):
            run.metrics.append(
                run.uid, file, [], before=NOT_READ, after=NOT_READ, limits=LIMITS, tags=[tag]
            )
        assert run.metrics.tags(run.uid) == [SummaryTag("a", "image", 1, 3, 5)]

    def test_tags_have_a_limit(self, store: StateStore) -> None:
        run, limits = _Run(store), MetricLimits(series=2)
        tags = [SummaryTag(name, "image", 1, 0, 0) for name in ("a", "b", "c", "d")]
        first = run.summarise(*tags, limits=limits)
        assert first == Appended(["tag 'c' is not listed: a job has at most 2 tags"], first=True)
        assert not run.summarise(*tags, limits=limits).first
        assert [(tag.name, tag.count) for tag in run.metrics.tags(run.uid)] == [("a", 2), ("b", 2)]

    def test_series_of_several_runs(self, store: StateStore) -> None:
        runs = [_Run(store, name) for name in ("red", "blue", "grey")]
        for run in runs[:2]:
            run.report([Value(name, 0, 0, 1.0) for name in ("loss", "accuracy")])
        uids = [run.uid for run in runs]
        found = store.metrics.series_of(uids, ["loss"])
        assert {run: [each.name for each in lines] for run, lines in found.items() if lines} == {
            uids[0]: ["loss"],
            uids[1]: ["loss"],
        }

    def test_points_go_with_their_run(self, store: StateStore) -> None:
        run = _Run(store)
        run.report(losses([1]))
        number = run.one().number
        store.delete(SAMPLE, run.uid, fence=None)
        assert not run.metrics.series(run.uid)
        assert not run.metrics.positions(run.uid)
        assert not run.metrics.points(number, PointRange())
        with pytest.raises(NotFound, match="no run"):
            run.report(losses([2]))

    def test_the_points_of_an_organisation_are_a_sum(self, store: StateStore) -> None:
        run, other = _Run(store), _Run(store, "blue")
        before = store.metrics.points_of_org("red")
        run.report(losses(range(5)))
        run.report(losses(range(3, 5)), attempt=2)  # the earlier points stay, and count
        other.report(losses(range(4)))
        assert store.metrics.points_of_org("red") == before + 11
        store.delete(SAMPLE, run.uid, fence=None)
        assert store.metrics.points_of_org("red") == before + 4

    def test_points_beyond_the_quota_of_the_organisation_are_refused(
        self, store: StateStore
    ) -> None:
        run, other = _Run(store), _Run(store, "blue")
        most = MetricLimits(org_points=store.metrics.points_of_org("red") + 6)
        assert not run.report(losses(range(5)), limits=most).refused
        appended = other.report(losses(range(5)), limits=most)
        assert appended == Appended([QUOTA_IS_FULL.format(most.org_points)], first=True)
        assert other.points() == [(0, 1.0)]
        assert not other.report(losses(range(5, 6)), limits=most).first
        store.delete(SAMPLE, run.uid, fence=None)  # makes room
        assert not other.report(losses(range(6, 11)), limits=most).refused
        assert len(other.points()) == 6

    def test_points_that_are_not_committed_do_not_count(self, store: StateStore) -> None:
        run, file = _Run(store), ReportFile(1, "master-0")
        run.report(losses([1]))
        before = store.metrics.points_of_org("red")
        with pytest.raises(StaleRevision):
            run.metrics.append(
                run.uid, file, losses([2]), before=NOT_READ, after=NOT_READ, limits=LIMITS
            )
        assert store.metrics.points_of_org("red") == before

    def test_points_are_removed_and_their_rows_stay(self, store: StateStore) -> None:
        run, other = _Run(store), _Run(store, "blue")
        other.report(losses(range(3)))
        run.report(losses(range(2 * CHUNK_POINTS)))
        run.report(losses(range(CHUNK_POINTS, CHUNK_POINTS + 9), 7.0), attempt=2)
        before, row = store.metrics.points_of_org("red"), run.one()
        (first, second) = store.metrics.runs_with_points(0, 9)
        assert {first.uid, second.uid} == {run.uid, other.uid}
        assert (first.kind, first.number < second.number) == (SAMPLE.name, True)
        assert store.metrics.runs_with_points(0, 1) == [first]
        assert store.metrics.runs_with_points(first.number, 9) == [second]
        removed = 0
        while more := store.metrics.remove_points(run.uid, 1):
            removed += more
        assert removed == 2 * CHUNK_POINTS + 9
        assert run.one() == replace(row, removed=removed)
        assert run.points() == []
        assert store.metrics.points_of_org("red") == before - removed
        assert [each.uid for each in store.metrics.runs_with_points(0, 9)] == [other.uid]
        run.report(losses([CHUNK_POINTS + 9], 8.0), attempt=2)  # a run may go on
        assert run.points() == [(CHUNK_POINTS + 9, 8.0)]
        store.delete(SAMPLE, run.uid, fence=None)
        assert store.metrics.points_of_org("red") == 3

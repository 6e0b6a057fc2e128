"""What is logged to a run."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG, REPORTS, MetricLimits
from cloud_ml.domain.tracking.runs import (
    MODEL_HISTORY_TAG,
    RUN,
    LogBatch,
    RunChange,
)
from cloud_ml.errors import InvalidRequest, NotFound, Unauthenticated
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, PointRange, ReportFile
from cloud_ml.testing.state.tracking.samples import LIMITS, METRICS, add_run, found, log


class LoggedBatchContract:
    """What is logged is there as a whole or not at all, and once."""

    def test_what_is_logged_together_is_kept_together(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        log(store, uid, metrics={"loss": 1.0}, params={"a": "1"}, tags={"t": "x"})
        for wrong in ({"params": {"a": "2"}}, {"params": {"b": "", "c": "", "d": ""}},
                      {"tags": {"u": "", "v": "", "w": ""}},
                      {"metrics": {f"m{number}": 0.0 for number in range(6)}}):  # fmt: skip
            batch: dict[str, Any] = {
                "metrics": {"extra": 1.0},
                "params": {"p": "q"},
                "tags": {"t": "y"},
                **wrong,
            }
            with pytest.raises(InvalidRequest):
                log(store, uid, **batch)
        tracking = store.tracking
        assert (tracking.params([uid]), tracking.tags([uid])) == (
            {uid: {"a": "1"}},
            {uid: {"t": "x"}},
        )
        assert [one.name for one in tracking.last_values([uid])[uid]] == ["loss"]
        log(store, uid, params={"a": "1"}, tags={"t": "y"})
        log(store, uid, removed_tags=["t", "never"])
        assert tracking.tags([uid]) == {}
        with pytest.raises(NotFound):
            log(store, "0" * 32, tags={"t": "x"})

    def test_what_was_reported_counts_before_a_log_and_that_before_an_event_file(
        self, store: StateStore
    ) -> None:
        uid = add_run(store, "one")
        for at, source in enumerate((REPORTS, LOG, EVENT_FILES), 1):
            file = ReportFile(1, "", source, source)
            after = FilePosition("file", 10)
            values = [Value(name, at, at, float(at)) for name in ("loss", source)]
            store.metrics.append(
                uid, file, values, before=NOT_READ, after=after, limits=MetricLimits()
            )
        last = {one.name: one.value for one in store.tracking.last_values([uid])[uid]}
        assert last == {"loss": 1.0, REPORTS: 1.0, LOG: 2.0, EVENT_FILES: 3.0}

    def test_last_values_are_in_the_order_of_their_names(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        for name in ("loss", "acc", "nan", "inf"):
            log(store, uid, metrics={name: 1.0})
        names = [one.name for one in store.tracking.last_values([uid])[uid]]
        assert names == ["acc", "inf", "loss", "nan"]

    def test_values_that_are_sent_again_are_there_once(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        values = [Value("loss", 1, 5, 2.0), Value("loss", 2, 6, math.nan), Value("loss", 2, 6, 3.0)]
        for _ in range(2):
            store.tracking.log(uid, LogBatch(values=values), limits=LIMITS, metric_limits=METRICS)
        (series,) = store.metrics.series(uid)
        assert (series.count, series.nan, series.last) == (3, 1, 3.0)
        assert [point.step for point in store.metrics.points(series.number, PointRange())] == [
            1,
            2,
            2,
        ]

    def test_a_request_is_carried_out_once(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        once = Once("mark", datetime.now(UTC) + timedelta(hours=1))
        log(store, uid, tags={"t": "x"}, once=once)
        with pytest.raises(Unauthenticated):
            log(store, uid, tags={"t": "y"}, once=once)
        with pytest.raises(Unauthenticated):
            store.tracking.change_run(uid, RunChange(name="new"), once=once)
        assert store.tracking.tags([uid]) == {uid: {"t": "x"}}

    def test_a_batch_that_is_refused_leaves_the_name(self, store: StateStore) -> None:
        uid = add_run(store, "one", params={"a": "1"})
        with pytest.raises(InvalidRequest):
            log(store, uid, params={"a": "2"}, name="new")
        run = store.tracking.run(uid)
        assert run is not None
        assert run.name == "one"
        log(store, uid, name="new")
        run = store.tracking.run(uid)
        assert run is not None
        assert run.name == "new"

    @pytest.mark.parametrize("tag", ["no JSON", "5", "[" * 8000])
    def test_models_are_added_to_a_list_only(self, store: StateStore, tag: str) -> None:
        uid = add_run(store, "one", tags={MODEL_HISTORY_TAG: tag})
        with pytest.raises(InvalidRequest, match=MODEL_HISTORY_TAG):
            log(store, uid, models=[{}])

    def test_values_that_are_sent_again_across_chunks_are_there_once(
        self, store: StateStore
    ) -> None:
        uid = add_run(store, "one")
        values = [Value("loss", step, step, step / 7) for step in range(CHUNK_POINTS + 700)]
        for first, last in ((0, 800), (800, 1724), (800, 1724)):
            batch = LogBatch(values=values[first:last])
            store.tracking.log(
                uid, batch, limits=LIMITS, metric_limits=MetricLimits(series=1, points=9999)
            )
        (series,) = store.metrics.series(uid)
        assert series.count == len(values)

    def test_data_sets_are_read_apart_from_a_search(self, store: StateStore) -> None:
        uid, other = add_run(store, "one"), add_run(store, "two")
        store.tracking.change_run(uid, RunChange(more_inputs=[{"set": 1}]))
        found = store.tracking.inputs([uid, other, "0" * 32])
        assert found == {uid: '[{"set": 1}]', other: "[]"}

    def test_a_run_goes_with_its_record(self, store: StateStore) -> None:
        uid = add_run(store, "one", params={"a": "b"}, tags={"c": "d"})
        log(store, uid, metrics={"loss": 1.0})
        store.delete(RUN, uid, fence=None)
        tracking = store.tracking
        assert tracking.run(uid) is None
        assert (tracking.params([uid]), tracking.last_values([uid])) == ({}, {})
        assert found(store) == []

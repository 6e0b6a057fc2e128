"""Runs are found by what was logged to them, and what is logged is there as a whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG, REPORTS, MetricLimits
from cloud_ml.domain.tracking.filters import Subject, parse_filter, parse_order
from cloud_ml.domain.tracking.runs import (
    ATTEMPT_TAG,
    MODEL_HISTORY_TAG,
    RUN,
    Experiment,
    LogBatch,
    NewRun,
    RunChange,
    RunSpec,
    RunState,
    RunStatus,
    TrackingLimits,
    View,
)
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, QuotaExceeded, Unauthenticated
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, PointRange, ReportFile
from cloud_ml.state.tracking import RunSearch
from cloud_ml.state.tracking_rules import MOST_EXPERIMENT_CHARACTERS
from cloud_ml.testing.state.samples import NOW

LIMITS, METRICS = TrackingLimits(params=3, tags=3), MetricLimits(series=5, points=100)


def add_run(store: StateStore, name: str, org: str = "red", **row: Any) -> str:
    """The uid of a new run."""
    run = NewRun(**{"name": name, "state": RunState.RUNNING, "start": 1000, **row})
    record = store.create(
        RUN, org=org, name=f"run-{name}", owner="ann", spec=RunSpec(), status=RunStatus(),
        now=NOW, run=run,
    )  # fmt: skip
    return record.key.uid


def log(store: StateStore, uid: str, *, once: Once | None = None, **batch: Any) -> None:
    values = [Value(name, 0, 1, value) for name, value in batch.pop("metrics", {}).items()]
    store.tracking.log(
        uid, LogBatch(values=values, **batch), limits=LIMITS, metric_limits=METRICS, once=once
    )


def found(
    store: StateStore, text: str = "", *order: str, org: str = "red", **more: Any
) -> list[str]:
    """The names of the runs that fulfil a filter."""
    wanted = RunSearch(
        org,
        conditions=parse_filter(text),
        order=parse_order(order),
        **more,
    )
    return [run.name for run in store.tracking.search(wanted).items]


def data_set(name: str, digest: str, *, context: str | None = None) -> dict[str, Any]:
    """A data set as MLflow's client notes it."""
    tags = [{"key": "team", "value": "train"}]
    if context is not None:
        tags.append({"key": "mlflow.data.context", "value": context})
    return {"dataset": {"name": name, "digest": digest, "source": "s"}, "tags": tags}


class TrackingContract:
    @pytest.fixture
    def searched(self, store: StateStore) -> StateStore:
        """A store with three runs of one organisation and one of another."""
        first = add_run(store, "first", params={"lr": "0.1", "opt": "adam"}, start=1000)
        second = add_run(
            store, "second", params={"lr": "0.2"}, tags={"a b": "Say 50% [x]*?"}, start=3000
        )
        third = add_run(store, "third", experiment="7", start=2000)
        foreign = add_run(store, "foreign", org="blue", params={"lr": "0.1"})
        log(store, first, metrics={"loss": 0.5, "bad": math.nan})
        log(store, second, metrics={"loss": 0.25, "acc": math.inf})
        log(store, foreign, metrics={"loss": 0.5})
        store.tracking.change_run(second, RunChange(state=RunState.FINISHED, end=5000))
        store.tracking.change_run(third, RunChange(state=RunState.FAILED))
        store.tracking.change_run(
            first,
            RunChange(
                more_inputs=[
                    {"model_input": {"model_id": "m-1"}},
                    data_set("digits", "0a1b", context="train"),
                    data_set("it's \\ 50%", "ffff", context="test"),
                ]
            ),
        )
        store.tracking.change_run(third, RunChange(more_inputs=[data_set("Digits", "0a1b")]))
        return store

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("", "third second first"),
            ("metrics.loss < 0.5", "second"),
            ("metrics.loss <= 0.5", "second first"),
            ("metrics.loss != 0.5", "second"),
            ("metrics.bad > -1", ""),
            ("metrics.bad IS NULL", "third second first"),
            ("metrics.loss IS NOT NULL", "second first"),
            ("metrics.acc > 1e300", "second"),
            ("params.lr = '0.1'", "first"),
            ("params.lr = '0.1' AND params.opt = 'adam' AND metrics.loss = 0.5", "first"),
            ("params.opt = 'adam' AND params.lr != '0.2'", "first"),
            ("params.lr != '0.1'", "second"),
            ("params.lr IN ('0.1', '0.2')", "second first"),
            ("params.lr NOT IN ('0.1')", "second"),
            ("params.lr IS NULL", "third"),
            ("params.opt LIKE 'a%'", "first"),
            ("params.opt LIKE 'A%'", ""),
            ("params.opt ILIKE 'A%'", "first"),
            ("params.opt LIKE '_dam'", "first"),
            ("params.opt LIKE 'dam'", ""),
            ("params.opt LIKE '%d%m%'", "first"),
            ('tags.`a b` = "Say 50% [x]*?"', "second"),
            ("tags.\"a b\" LIKE '%[x]*?'", "second"),
            ("tags.`a b` LIKE '%[y]%'", ""),
            ("tags.`a b` ILIKE '%say%\\'", ""),
            ("attributes.status = 'FINISHED'", "second"),
            ("attributes.status = 'finished'", "second"),
            ("attributes.status IN ('finished')", "second"),
            ("status != 'FINISHED'", "third first"),
            ("status IN ('FAILED', 'RUNNING')", "third first"),
            ("attr.run_name LIKE '%ir%'", "third first"),
            ("start_time > 1000", "third second"),
            ("end_time >= 5000", "second"),
            ("end_time IS NULL", "third first"),
            ("user_id = 'ann'", "third second first"),
            ("artifact_uri LIKE 'mlflow-artifacts:/%/artifacts'", "third second first"),
            ("run_id = 'nothing'", ""),
            ("params.lr = '0.1'' OR 1=1 --'", ""),
            ("dataset.name = 'digits'", "first"),
            ("datasets.name ILIKE 'digits'", "third first"),
            ("dataset.digest IN ('0a1b')", "third first"),
            ("dataset.name != 'digits'", "third first"),
            ("dataset.name LIKE '%''s \\ 50_'", "first"),
            ("dataset.context = 'train'", "first"),
            ("dataset.context NOT IN ('train')", "first"),
            ("dataset.context = 'test' AND dataset.name = 'digits' AND params.lr = '0.1'", "first"),
            ("dataset.context = 'other'", ""),
        ],
    )
    def test_a_filter_finds(self, searched: StateStore, text: str, names: str) -> None:
        assert found(searched, text) == names.split()

    @pytest.mark.parametrize(
        ("order", "names"),
        [
            ("metrics.loss", "second first third"),
            ("metrics.loss DESC", "first second third"),
            ("params.lr DESC", "second first third"),
            ("tags.`a b`", "second third first"),
            ("start_time ASC", "first third second"),
            ("end_time", "second third first"),
            ("status", "third second first"),
            ("attributes.run_name DESC", "third second first"),
        ],
    )
    def test_runs_come_in_the_order_that_is_asked_for(
        self, searched: StateStore, order: str, names: str
    ) -> None:
        assert found(searched, "", order) == names.split()

    def test_experiments_and_views_narrow_a_search(self, searched: StateStore) -> None:
        assert found(searched, experiments=["7"]) == ["third"]
        assert found(searched, experiments=["7", "0"]) == ["third", "second", "first"]
        assert found(searched, experiments=[]) == []
        (third,) = searched.tracking.search(RunSearch("red", ["7"])).items
        searched.tracking.change_run(third.uid, RunChange(deleted=True))
        assert found(searched) == ["second", "first"]
        assert found(searched, view=View.DELETED) == ["third"]
        assert found(searched, view=View.ALL, experiments=["7"]) == ["third"]
        searched.tracking.change_run(third.uid, RunChange(deleted=False))
        assert found(searched, experiments=["7"]) == ["third"]

    @pytest.mark.parametrize("order", [(), ("start_time",)])
    def test_pages_follow_each_other(self, store: StateStore, order: tuple[str, ...]) -> None:
        for number in range(5):
            add_run(store, f"run{number}", start=number)
        names, after = [], None
        for _ in range(3):
            wanted = RunSearch("red", order=parse_order(order), after=after, limit=2)
            page = store.tracking.search(wanted)
            names += [run.name for run in page.items]
            after = page.next
        expected = [f"run{number}" for number in range(5)]
        assert names == (expected if order else expected[::-1])
        assert after is None

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

    def test_an_attempt_begins_the_run_of_its_job_once(self, store: StateStore) -> None:
        uid = add_run(store, "one", tags={"t": "x"})
        began = [
            store.tracking.begin_job_run(uid, attempt, experiment, tags, limits=LIMITS)
            for attempt, experiment, tags in (
                (1, "7", {"a": "1"}),
                (1, "8", {"b": "1"}),
                (2, None, {"a": "2"}),
            )
        ]
        assert began == [True, False, True]
        run = store.tracking.run(uid)
        assert run is not None
        assert (run.name, run.experiment, run.state) == ("one", "7", RunState.RUNNING)
        assert store.tracking.tags([uid]) == {uid: {"t": "x", "a": "2", ATTEMPT_TAG: "2"}}
        assert found(store, experiments=["7"]) == ["one"]
        with pytest.raises(InvalidRequest):
            store.tracking.begin_job_run(uid, 3, "9", {"c": "", "d": ""}, limits=LIMITS)
        with pytest.raises(NotFound):
            store.tracking.begin_job_run("0" * 32, 1, None, {}, limits=LIMITS)
        assert found(store, experiments=["7"]) == ["one"]

    def test_a_run_that_is_not_begun_leaves_the_mark_of_the_request(
        self, store: StateStore
    ) -> None:
        uid = add_run(store, "one")
        once = Once("mark", datetime.now(UTC) + timedelta(hours=1))
        tracking = store.tracking
        assert tracking.begin_job_run(uid, 1, None, {}, limits=LIMITS)
        assert not tracking.begin_job_run(uid, 1, None, {}, limits=LIMITS, once=once)
        assert tracking.begin_job_run(uid, 2, None, {}, limits=LIMITS, once=once)
        with pytest.raises(Unauthenticated):
            tracking.begin_job_run(uid, 3, None, {}, limits=LIMITS, once=once)

    def test_two_tasks_begin_a_run_once(self, store: StateStore) -> None:
        uid = add_run(store, "one")

        def begin(_: int) -> bool:
            return store.tracking.begin_job_run(uid, 1, "7", {}, limits=LIMITS)

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(begin, range(8))) == 1

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

    @pytest.mark.parametrize(
        "change",
        [
            RunChange(name="new"),
            RunChange(state=RunState.FINISHED),
            RunChange(end=5000),
            RunChange(deleted=True),
        ],
        ids=["name", "state", "end", "deletion"],
    )
    def test_followers_are_told_of_a_change_of_a_run(
        self, store: StateStore, change: RunChange
    ) -> None:
        uid = add_run(store, "one")
        at, heard = store.revision(), list[int]()
        store.subscribe(lambda: heard.append(store.revision()))
        run = store.tracking.change_run(uid, change)
        assert [(told.kind, told.uid, told.revision) for told in store.changes(at)] == [
            (RUN.name, uid, run.revision)
        ]
        record = store.get(RUN, uid)
        assert record is not None
        assert record.revision == run.revision == store.revision() > at
        assert store.tracking.run(uid) == run
        assert heard[-1] == run.revision
        again = store.tracking.change_run(uid, change)
        assert (again.revision, store.revision()) == (run.revision, run.revision)

    def test_a_name_that_is_logged_is_told(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        at, heard = store.revision(), list[int]()
        store.subscribe(lambda: heard.append(store.revision()))
        log(store, uid, tags={"a": "b"}, name="one")
        assert store.revision() == at
        log(store, uid, tags={"a": "c"}, name="new")
        assert [(told.uid, told.revision) for told in store.changes(at)] == [(uid, heard[-1])]

    def test_what_is_logged_to_a_run_is_no_change_of_it(self, store: StateStore) -> None:
        uid = add_run(store, "one")
        at, heard = store.revision(), list[int]()
        store.subscribe(lambda: heard.append(store.revision()))
        log(store, uid, metrics={"loss": 0.5}, params={"a": "1"}, tags={"b": "2"})
        log(store, uid, removed_tags=["b"], models=[{"model_id": "m"}])
        store.tracking.change_run(uid, RunChange(more_inputs=[data_set("digits", "0a1b")]))
        assert (store.changes(at), store.revision(), heard) == ((), at, [])

    def test_a_change_that_is_refused_is_not_told(self, store: StateStore) -> None:
        uid, at = add_run(store, "one", params={"a": "1"}), store.revision()
        once = Once("mark", datetime.now(UTC) + timedelta(hours=1))
        run = store.tracking.change_run(uid, RunChange(state=RunState.FAILED), once=once)
        with pytest.raises(Unauthenticated):
            store.tracking.change_run(uid, RunChange(state=RunState.KILLED), once=once)
        with pytest.raises(InvalidRequest):
            log(store, uid, params={"a": "2"}, name="new")
        assert store.tracking.run(uid) == run
        assert [told.revision for told in store.changes(at)] == [run.revision]

    def test_changes_of_runs_at_once_have_revisions_of_their_own(self, store: StateStore) -> None:
        uids, at = [add_run(store, f"run{number}") for number in range(12)], store.revision()

        def end(uid: str) -> int:
            change = RunChange(state=RunState.FINISHED, end=5000)
            return store.tracking.change_run(uid, change).revision

        with ThreadPoolExecutor(8) as pool:
            told = dict(zip(uids, pool.map(end, uids), strict=True))
        assert sorted(told.values()) == list(range(at + 1, at + 13))
        assert {one.uid: one.revision for one in store.changes(at)} == told

    def test_the_record_of_a_job_is_its_own(self, store: StateStore) -> None:
        spec = from_wire(TrainJob("linear", "trainer.task", "fds://cloudml/linear.tar.gz"))
        job = store.create(
            TRAIN_JOB, org="red", name="linear", owner="ann", spec=spec,
            status=WorkloadStatus(phase=Phase.QUEUED), now=NOW, run=NewRun(name="linear"),
        )  # fmt: skip
        at = store.revision()
        store.tracking.change_run(job.key.uid, RunChange(name="new", deleted=True))
        log(store, job.key.uid, name="newer")
        run = store.tracking.run(job.key.uid)
        assert run is not None
        assert (run.name, run.deleted, run.revision) == ("newer", True, job.revision)
        assert (store.get(TRAIN_JOB, job.key.uid), store.changes(at)) == (job, ())

    def test_long_and_odd_texts_are_found(self, store: StateStore) -> None:
        long, odd = "é" * 6000, "it's \\ 100%"
        add_run(store, "long", params={"text": long, "odd": odd})
        assert found(store, f"params.text = '{long}'") == ["long"]
        assert found(store, f"params.text = '{long[:-1]}'") == []
        assert found(store, 'params.odd = "it\'s \\ 100%"') == ["long"]
        assert found(store, "params.odd LIKE '%\\ 100_'") == ["long"]
        assert found(store, "params.odd ILIKE 'IT%\\ 100_'") == ["long"]

    def test_experiments(self, store: StateStore) -> None:
        tracking = store.tracking
        one = tracking.add_experiment(
            Experiment("1", "red", "digits", 1, 1, tags={"a": "b"}), most=2, once=None
        )
        tracking.add_experiment(Experiment("1", "blue", "digits"), most=2, once=None)
        for taken in (Experiment("1", "red", "new"), Experiment("2", "red", "digits")):
            with pytest.raises(AlreadyExists):
                tracking.add_experiment(taken, most=9, once=None)
        two = tracking.add_experiment(Experiment("2", "red", "letters", 2, 2), most=2, once=None)
        with pytest.raises(QuotaExceeded):
            tracking.add_experiment(Experiment("3", "red", "more"), most=2, once=None)
        assert tracking.experiments("red") == [two, one]
        assert tracking.find_experiment("red", "digits") == one
        assert tracking.experiment("red", "1") == one
        assert tracking.experiment("green", "1") is None
        with pytest.raises(AlreadyExists):
            tracking.change_experiment(
                "red", "2", lambda before: replace(before, name="digits"), once=None
            )
        with pytest.raises(NotFound):
            tracking.change_experiment("red", "9", lambda before: before, once=None)
        gone = Experiment("2", "red", "words", 2, 3, deleted=True, tags={"x": "y"})
        changed = tracking.change_experiment("red", "2", lambda _before: gone, once=None)
        assert tracking.experiment("red", "2") == changed
        assert replace(changed, revision=0) == gone
        assert tracking.experiment("red", "0") is None
        tracking.change_experiment("red", "0", lambda one: replace(one, updated=7), once=None)
        assert tracking.experiment("red", "0") == Experiment("0", "red", "Default", updated=7)
        tracking.forget_experiments("red")
        assert tracking.experiments("red") == []
        assert [one.name for one in tracking.experiments("blue")] == ["digits"]

    def test_followers_are_told_of_changes_of_experiments(self, store: StateStore) -> None:
        tracking, heard = store.tracking, list[int]()
        store.subscribe(lambda: heard.append(store.revision()))
        at = store.revision()
        one = tracking.add_experiment(Experiment("1", "red", "digits"), most=9, once=None)
        assert one.revision == store.revision() == heard[-1] > at
        other = tracking.add_experiment(Experiment("1", "blue", "digits"), most=9, once=None)
        assert list(tracking.experiment_changes(at, limit=9)) == [one, other]
        assert list(tracking.experiment_changes(at, limit=1)) == [one]
        assert list(tracking.experiment_changes(one.revision, limit=9)) == [other]
        changes: list[Callable[[Experiment], Experiment]] = [
            lambda before: replace(before, name="letters"),
            lambda before: replace(before, tags={"a": "b"}),
            lambda before: replace(before, deleted=True),
            lambda before: replace(before, deleted=False),
        ]
        for change in changes:
            before = store.revision()
            one = tracking.change_experiment("red", "1", change, once=None)
            assert list(tracking.experiment_changes(before, limit=9)) == [one]
            assert one.revision == store.revision() == heard[-1] > before
        assert list(tracking.experiment_changes(at, limit=9)) == [other, one]
        assert list(tracking.experiment_changes(at, org="red", limit=9)) == [one]
        assert list(tracking.experiment_changes(at, org="blue", id_="1", limit=9)) == [other]
        assert list(tracking.experiment_changes(at, org="red", id_="2", limit=9)) == []
        assert list(tracking.experiment_changes(one.revision, org="red", id_="1", limit=9)) == []
        assert store.changes(at) == ()  # the feed of records has records only

    def test_what_leaves_an_experiment_as_it_was_is_not_told(self, store: StateStore) -> None:
        tracking = store.tracking
        one = tracking.add_experiment(
            Experiment("1", "red", "digits", tags={"a": "b"}), most=9, once=None
        )
        same = tracking.change_experiment(
            "red", "1", lambda before: replace(before, updated=7, tags={"a": "b"}), once=None
        )
        default = tracking.change_experiment(
            "red", "0", lambda before: replace(before, updated=7), once=None
        )
        with pytest.raises(AlreadyExists):
            tracking.add_experiment(Experiment("2", "red", "digits"), most=9, once=None)
        assert (same.revision, same.updated, default.revision) == (one.revision, 7, 0)
        assert store.revision() == one.revision

    def test_changes_at_the_same_time_are_all_kept(self, store: StateStore) -> None:
        tracking, uid = store.tracking, add_run(store, "one")
        tracking.add_experiment(Experiment("1", "red", "digits"), most=2, once=None)

        def change(number: int) -> None:
            tracking.change_experiment(
                "red",
                "1",
                lambda one: replace(one, tags={**one.tags, str(number): ""}),
                once=None,
            )
            tracking.change_run(uid, RunChange(more_inputs=[{"set": number}]))
            log(store, uid, models=[{"model": number}])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(change, range(20)))
        experiment, run = tracking.experiment("red", "1"), tracking.run(uid)
        assert experiment is not None
        assert len(experiment.tags) == 20
        assert run is not None
        assert len(json.loads(run.inputs)) == 20
        assert len(json.loads(tracking.tags([uid])[uid][MODEL_HISTORY_TAG])) == 20

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

    def test_tags_of_all_experiments_are_bounded_together(self, store: StateStore) -> None:
        tracking = store.tracking
        half = {"t": "x" * (MOST_EXPERIMENT_CHARACTERS // 2)}
        tracking.add_experiment(Experiment("1", "red", "one", tags=half), most=9, once=None)
        tracking.add_experiment(Experiment("1", "blue", "one", tags=half), most=9, once=None)
        more = Experiment("2", "red", "two", tags=half)
        with pytest.raises(QuotaExceeded):
            tracking.add_experiment(more, most=9, once=None)
        tracking.add_experiment(replace(more, tags={}), most=9, once=None)
        with pytest.raises(QuotaExceeded):
            tracking.change_experiment("red", "2", lambda _before: more, once=None)
        tracking.change_experiment("red", "1", lambda one: replace(one, tags={}), once=None)
        tracking.change_experiment("red", "2", lambda _before: more, once=None)

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

    def test_a_filter_of_experiments_has_its_own_attributes(self) -> None:
        with pytest.raises(InvalidRequest, match="creation_time"):
            parse_filter("start_time > 1", Subject.EXPERIMENTS)

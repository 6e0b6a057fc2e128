"""Changes of runs, and who hears of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.domain.tracking.runs import (
    MODEL_HISTORY_TAG,
    RUN,
    Experiment,
    RunChange,
    RunState,
)
from cloud_ml.errors import InvalidRequest, Unauthenticated
from cloud_ml.state.base import Once, StateStore
from cloud_ml.testing.state.tracking.samples import add_run, data_set, log


class RunChangeContract:
    """Followers hear of each change of a run, and of nothing else."""

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
        assert [
            (record_change.kind, record_change.uid, record_change.revision)
            for record_change in store.changes(at)
        ] == [(RUN.name, uid, run.revision)]
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
        assert [
            (record_change.uid, record_change.revision) for record_change in store.changes(at)
        ] == [(uid, heard[-1])]

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
        assert [record_change.revision for record_change in store.changes(at)] == [run.revision]

    def test_changes_of_runs_at_once_have_revisions_of_their_own(self, store: StateStore) -> None:
        uids, at = [add_run(store, f"run{number}") for number in range(12)], store.revision()

        def end(uid: str) -> int:
            change = RunChange(state=RunState.FINISHED, end=5000)
            return store.tracking.change_run(uid, change).revision

        with ThreadPoolExecutor(8) as pool:
            revisions = dict(zip(uids, pool.map(end, uids), strict=True))
        assert sorted(revisions.values()) == list(range(at + 1, at + 13))
        assert {one.uid: one.revision for one in store.changes(at)} == revisions

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

"""The runs of jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.tracking.runs import (
    ATTEMPT_TAG,
    NewRun,
    RunChange,
    RunState,
)
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.errors import InvalidRequest, NotFound, Unauthenticated
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.base import Once, StateStore
from cloud_ml.testing.state.samples import NOW
from cloud_ml.testing.state.tracking.samples import LIMITS, add_run, found, log


class JobRunContract:
    """The run of a job begins once for each attempt, and leaves the record of its job alone."""

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

"""What a caller may ask of runs. Blocking."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.quotas import QuotaOf
from cloud_ml.domain.records import Event, Kind, Record
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tracking.filters import parse_filter, parse_order
from cloud_ml.domain.tracking.runs import (
    DEFAULT_EXPERIMENT,
    LONGEST_TAG,
    PARENT_TAG,
    RUN,
    USER_TAG,
    LastValue,
    LogBatch,
    NewRun,
    RunChange,
    RunRow,
    RunSpec,
    RunState,
    RunStatus,
    TrackingLimits,
    View,
)
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models import common
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.tracking import RunSearch
from cloud_ml.usecases.access.identities import Identity, JobAttempt
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.metrics.limits import NO_METRICS, RunLimits
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.tracking import checks
from cloud_ml.usecases.tracking.experiments import Experiments

RUN_NAME_TAG = "mlflow.runName"
_MOST_EXPERIMENTS = 1000
_READ_TOGETHER, _MOST_PAGE_CHARACTERS = 20, 8_000_000
"""A run may hold some 3 MB: a page ends early where they do, and few are read at once."""
_VALUE_CHARACTERS = 100


@dataclass(frozen=True)
class LoggedRun:
    """A run with what was logged to it."""

    row: RunRow
    metrics: Sequence[LastValue]
    params: Mapping[str, str]
    tags: Mapping[str, str]


class Runs:
    """Runs of organisations. Those of another one look as absent as those that never were."""

    def __init__(
        self,
        store: StateStore,
        experiments: Experiments,
        clock: Clock,
        *,
        records: RecordLimits,
        settings: TrackingSettings,
        metric_settings: MetricSettings,
        quota_of: QuotaOf | None = None,
    ) -> None:
        self._store = store
        self._experiments = experiments
        self._clock = clock
        self._records = records
        self._search_s = settings.search_s
        self._limits = TrackingLimits(settings.params_per_run, settings.tags_per_run)
        self._metric_limits = RunLimits(metric_settings, quota_of)

    def create(
        self,
        caller: Identity,
        experiment: str,
        name: object = "",
        *,
        start: int | None = None,
        tags: Mapping[str, object] | None = None,
        once: Once | None = None,
    ) -> LoggedRun:
        """Make a run without a job.

        The first one that an attempt of a job makes is the run of the job, in the experiment that
        it names. The others are its children. The name of the job's run stays that of the job.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The name or a tag is wrong, or the experiment is deleted.
            NotFound: There is no such experiment.
            QuotaExceeded: The organisation has as many runs as it may have.
        """
        permit(caller, Operation.RUN_JOBS)
        if self._experiments.get(caller.org, experiment).deleted:
            raise InvalidRequest(
                f"experiment {experiment} is deleted", field="experiment_id", value=experiment,
                allowed="an experiment that is active", hint="Restore it first.",
            )  # fmt: skip
        checked = checks.check_pairs("tags", tags or {}, LONGEST_TAG)
        # Leave room for the tag with the run's name.
        tracking_rules.check_number("tags", len(checked), self._limits.tags - 1)
        if caller.job is not None:
            if USER_TAG in checked:
                checked[USER_TAG] = caller.user
            if self._begin_job_run(caller, caller.job, experiment, checked, once):
                return self.describe(caller.org, caller.job.uid)
            checked.setdefault(PARENT_TAG, caller.job.uid)
        record_name = f"run-{uuid.uuid4().hex}"
        called = checks.check_run_name(name or checked.get(RUN_NAME_TAG) or record_name[:12])
        checked[RUN_NAME_TAG] = called
        self._records.check(RUN, caller.org, "runs", RunSpec())
        now = self._clock()
        made = NewRun(
            experiment=experiment,
            name=called,
            state=RunState.RUNNING,
            start=round(now.timestamp() * 1000) if start is None else start,
            tags=checked,
        )
        record = self._store.create(
            RUN,
            org=caller.org,
            name=record_name,
            owner=caller.user,
            spec=RunSpec(),
            status=RunStatus(),
            now=now,
            events=[Event(now, "Created", f"created by {caller.user}")],
            once=once,
            run=made,
        )
        return self.describe(caller.org, record.key.uid)

    def _begin_job_run(
        self,
        caller: Identity,
        job: JobAttempt,
        experiment: str,
        tags: Mapping[str, str],
        once: Once | None,
    ) -> bool:
        """Have the attempt begin the run of its job; false if it has done so before.

        The default experiment is what a client names that was told of none: it leaves the
        experiment of the job's label.
        """
        run = self._store.tracking.run(job.uid)
        if run is None or run.org != caller.org:
            return False
        kept = {key: value for key, value in tags.items() if key != RUN_NAME_TAG}
        return self._store.tracking.begin_job_run(
            job.uid,
            job.attempt,
            None if experiment == DEFAULT_EXPERIMENT else experiment,
            kept,
            limits=self._limits,
            once=once,
        )

    def find(self, org: str, uid: str) -> RunRow:
        """A run.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        found = self._store.tracking.run(uid)
        if found is None or found.org != org:
            raise tracking_rules.no_run(uid)
        return found

    def record(self, org: str, uid: str) -> Record[Any, Any]:
        """The record of a run: that of its job, or its own.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        found = self._store.get(kind_of(self.find(org, uid)), uid)
        if found is None:
            raise tracking_rules.no_run(uid)
        return found

    def describe(self, org: str, uid: str) -> LoggedRun:
        """A run with what was logged to it.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        return self.described([self.find(org, uid)])[0]

    def described(
        self, rows: Sequence[RunRow], metrics: Collection[str] | None = None
    ) -> list[LoggedRun]:
        """Runs with what was logged to them; with ``metrics``, only these of metrics."""
        uids = [row.uid for row in rows]
        tracking = self._store.tracking
        values = tracking.last_values(uids, metrics)
        params, tags, inputs = tracking.params(uids), tracking.tags(uids), tracking.inputs(uids)
        return [
            LoggedRun(
                _with_inputs(row, inputs.get(row.uid, row.inputs)),
                values.get(row.uid, ()),
                params.get(row.uid, {}),
                tags.get(row.uid, {}),
            )
            for row in rows
        ]

    def search(
        self,
        org: str,
        *,
        experiments: Sequence[str] | None = None,
        text: str = "",
        order: Sequence[str] = (),
        view: View = View.ACTIVE,
        after: int | None = None,
        limit: int = 50,
        metrics: Collection[str] | None = None,
    ) -> tuple[list[LoggedRun], int | None]:
        """A page of runs, and the cursor of the next one.

        Raises:
            InvalidRequest: The filter, the order or a number is wrong.
        """
        if experiments is not None and len(experiments) > _MOST_EXPERIMENTS:
            most = f"at most {_MOST_EXPERIMENTS} experiments"
            raise common.refuse("experiment_ids", f"{len(experiments)} of them", most)
        run_search = RunSearch(
            org,
            None if experiments is None else list(experiments),
            parse_filter(text),
            parse_order(order),
            view,
            after,
            limit,
            self._search_s,
        )
        page = self._store.tracking.search(run_search)
        found: list[LoggedRun] = []
        size = 0
        while len(found) < len(page.items) and size < _MOST_PAGE_CHARACTERS:
            part = self.described(page.items[len(found) : len(found) + _READ_TOGETHER], metrics)
            found += part
            size += sum(map(_characters, part))
        if len(found) == len(page.items):
            return found, page.next
        # With an order, the cursor is an offset; without one, it is the number of the last run.
        return found, (after or 0) + len(found) if order else found[-1].row.number

    def remove(self, caller: Identity, uid: str, *, once: Once | None = None) -> LoggedRun:
        """Remove a run without a job for good.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
            Conflict: It is a job.
        """
        permit(caller, Operation.RUN_JOBS)
        run = self.describe(caller.org, uid)
        if run.row.is_job:
            raise Conflict(
                f"run {uid} is the job {run.row.name}", field="run", value=uid,
                allowed="a run without a job", hint="Delete the job: its run goes with it.",
            )  # fmt: skip
        self._store.request_delete(RUN, uid, now=self._clock(), once=once)
        # The request above has used up ``once``. Repeating the deletion is harmless.
        self._store.delete(RUN, uid, fence=None)
        return run

    def change(
        self, caller: Identity, uid: str, change: RunChange, *, once: Once | None = None
    ) -> RunRow:
        """Change name, state or end of a run, or hide it. State and end of a job are its own.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The run is deleted.
            NotFound: There is none.
        """
        permit(caller, Operation.RUN_JOBS)
        row = self.find(caller.org, uid)
        if change.deleted is None:
            self._check_active(row)
        if change.name:
            tags = {RUN_NAME_TAG: checks.check_run_name(change.name)}
            self._log(caller.org, uid, LogBatch(tags=tags))
        return self._store.tracking.change_run(uid, change, once=once)

    def log(
        self,
        caller: Identity,
        uid: str,
        *,
        values: Sequence[Value] = (),
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, object] | None = None,
        removed_tags: Collection[str] = (),
        models: Sequence[Any] = (),
        once: Once | None = None,
    ) -> None:
        """Log values, parameters and tags: all of them, or nothing.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: Something is wrong, a parameter has another value already, or the run is
                deleted.
            NotFound: There is no such run, or no tag of a name that is to be removed.
        """
        permit(caller, Operation.RUN_JOBS)
        self._check_active(self.find(caller.org, uid))
        checked = checks.check_pairs("tags", tags or {}, LONGEST_TAG)
        batch = LogBatch(
            values,
            checks.check_pairs("params", params or {}, checks.LONGEST_PARAM),
            checked,
            removed_tags,
            models,
            checks.check_run_name(checked.get(RUN_NAME_TAG, "")),
        )
        self._log(caller.org, uid, batch, once)

    def add_inputs(
        self, caller: Identity, uid: str, inputs: Sequence[Any], *, once: Once | None = None
    ) -> None:
        """Note the data sets that a run has read. What is there already stays once.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: There are too many, or the run is deleted.
            NotFound: There is no such run.
        """
        permit(caller, Operation.RUN_JOBS)
        self._check_active(self.find(caller.org, uid))
        self._store.tracking.change_run(uid, RunChange(more_inputs=inputs), once=once)

    def _log(self, org: str, uid: str, batch: LogBatch, once: Once | None = None) -> None:
        metric_limits = self._metric_limits.of(org) if batch.values else NO_METRICS
        self._store.tracking.log(
            uid, batch, limits=self._limits, metric_limits=metric_limits, once=once
        )

    @staticmethod
    def _check_active(row: RunRow) -> None:
        if row.deleted:
            raise InvalidRequest(
                f"run {row.uid} is deleted", field="run_id", value=row.uid,
                allowed="a run that is active", hint="Restore it first.",
            )  # fmt: skip


def kind_of(row: RunRow) -> Kind[Any, Any]:
    """Of which kind the record of a run is."""
    return TRAIN_JOB if row.is_job else RUN


def _with_inputs(row: RunRow, inputs: str) -> RunRow:
    """The run with these data sets. Most runs of a page have none, and need no copy."""
    return row if row.inputs == inputs else replace(row, inputs=inputs)


def _characters(run: LoggedRun) -> int:
    """About how long a run is in an answer."""
    texts = [*run.params.items(), *run.tags.items()]
    size = sum(len(key) + len(value) for key, value in texts)
    return size + _VALUE_CHARACTERS * (len(run.metrics) + len(texts)) + len(run.row.inputs)

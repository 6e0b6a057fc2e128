"""Runs and experiments in memory, beside ``state.memory``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.series import MetricLimits, precedence
from cloud_ml.domain.records import Summary
from cloud_ml.domain.tracking.artifacts import artifact_uri
from cloud_ml.domain.tracking.datasets import dataset_values
from cloud_ml.domain.tracking.filters import Entity, OrderKey
from cloud_ml.domain.tracking.matching import FilteredEntity, fulfils, in_order
from cloud_ml.domain.tracking.runs import (
    ATTEMPT_TAG,
    CLIENT_TASK,
    Experiment,
    LastValue,
    LogBatch,
    NewRun,
    RunChange,
    RunRow,
    RunState,
    TrackingLimits,
    state_of_phase,
)
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once
from cloud_ml.state.memory_metrics import MemoryMetricStore, Transaction
from cloud_ml.state.tracking import RunPage, RunSearch, TrackingStore

Marking = Callable[[Once | None, str], AbstractContextManager[None]]


@dataclass
class _Run:
    made: NewRun
    change: RunChange = field(default_factory=RunChange)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class MemoryTrackingStore(TrackingStore):
    """See ``TrackingStore``.

    Args:
        reading: Holds the lock of the store of records.
        writing: The same for a write that uses up the mark of a request.
        metrics: Keeps the points.
        lines: The lines of all records, by uid.
        revision_of: The revision of a record.
        touch: Gives a record a new revision, which it returns.
        advance: Takes a revision, which it returns.
        notify: Wakes those who follow the feed of changes; called outside of the lock.
    """

    def __init__(
        self,
        reading: Transaction,
        writing: Marking,
        metrics: MemoryMetricStore,
        lines: Callable[[], Mapping[str, Summary]],
        *,
        revision_of: Callable[[str], int],
        touch: Callable[[str], int],
        advance: Callable[[], int],
        notify: Callable[[], None],
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._metrics = metrics
        self._lines = lines
        self._revision_of = revision_of
        self._touch = touch
        self._advance = advance
        self._notify = notify
        self._runs: dict[str, _Run] = {}
        self._experiments: dict[tuple[str, str], Experiment] = {}

    def add(self, uid: str, run: NewRun) -> None:
        """A record was made that is a run."""
        self._runs[uid] = _Run(run, RunChange(), dict(run.params), dict(run.tags))

    def forget(self, uid: str) -> None:
        """The record is gone."""
        self._runs.pop(uid, None)

    def add_experiment(self, experiment: Experiment, *, most: int, once: Once | None) -> Experiment:
        """See ``TrackingStore.add_experiment``."""
        with self._writing(once, experiment.id):
            of_org = self.experiments(experiment.org)
            if any(one.id == experiment.id or one.name == experiment.name for one in of_org):
                raise tracking_rules.experiment_taken(experiment)
            if len(of_org) >= most:
                raise tracking_rules.too_many_experiments(experiment.org, most)
            self._check_tags_of_all(experiment)
            made = replace(experiment, revision=self._advance())
            self._experiments[made.org, made.id] = made
        self._notify()
        return made

    def change_experiment(
        self,
        org: str,
        id_: str,
        change: Callable[[Experiment], Experiment],
        *,
        once: Once | None,
    ) -> Experiment:
        """See ``TrackingStore.change_experiment``."""
        with self._writing(once, id_):
            stored = self._experiments.get((org, id_))
            before = tracking_rules.existing_experiment(stored, org, id_)
            after = change(before)
            named = self.find_experiment(org, after.name)
            if named is not None and named.id != id_:
                raise tracking_rules.experiment_taken(after)
            self._check_tags_of_all(after)
            after = tracking_rules.with_revision(before, after, self._advance)
            self._experiments[org, id_] = after
        self._notify()
        return after

    def experiments(self, org: str) -> Sequence[Experiment]:
        """See ``TrackingStore.experiments``."""
        with self._reading():
            found = [one for one in self._experiments.values() if one.org == org]
        return sorted(found, key=lambda one: (one.created, one.id), reverse=True)

    def experiment(self, org: str, id_: str) -> Experiment | None:
        """See ``TrackingStore.experiment``."""
        with self._reading():
            return self._experiments.get((org, id_))

    def find_experiment(self, org: str, name: str) -> Experiment | None:
        """See ``TrackingStore.find_experiment``."""
        return next((one for one in self.experiments(org) if one.name == name), None)

    def experiment_changes(
        self, after: int, *, org: str | None = None, id_: str | None = None, limit: int
    ) -> Sequence[Experiment]:
        """See ``TrackingStore.experiment_changes``."""
        with self._reading():
            found = [
                one
                for one in self._experiments.values()
                if one.revision > after and org in (None, one.org) and id_ in (None, one.id)
            ]
        return sorted(found, key=lambda one: one.revision)[:limit]

    def forget_experiments(self, org: str) -> None:
        """See ``TrackingStore.forget_experiments``."""
        with self._writing(None, org):
            self._experiments = {
                key: one for key, one in self._experiments.items() if one.org != org
            }

    def run(self, uid: str) -> RunRow | None:
        """See ``TrackingStore.run``."""
        with self._reading():
            line = self._lines().get(uid)
            return None if line is None or uid not in self._runs else self._row(line)

    def change_run(self, uid: str, change: RunChange, *, once: Once | None = None) -> RunRow:
        """See ``TrackingStore.change_run``."""
        with self._writing(once, uid):
            after = self._change(self._existing(uid), change)
        if tracking_rules.may_be_news(change):
            self._notify()
        return after

    def begin_job_run(
        self,
        uid: str,
        attempt: int,
        experiment: str | None,
        tags: Mapping[str, str],
        *,
        limits: TrackingLimits,
        once: Once | None = None,
    ) -> bool:
        """See ``TrackingStore.begin_job_run``."""
        with self._reading():
            row, run = self._existing(uid), self._runs[uid]
            if not tracking_rules.begins(run.tags, attempt):
                return False  # the mark is for the run that is made instead
            with self._writing(once, uid):
                after = {**run.tags, **tags, ATTEMPT_TAG: str(attempt)}
                tracking_rules.check_number("tags", len(after), limits.tags)
                tracking_rules.check_characters("tags", after, limits.characters)
                run.tags = after
                self._change(row, RunChange(experiment=experiment))
            return True

    def log(
        self,
        uid: str,
        batch: LogBatch,
        *,
        limits: TrackingLimits,
        metric_limits: MetricLimits,
        once: Once | None = None,
    ) -> None:
        """See ``TrackingStore.log``."""
        with self._writing(once, uid):
            row = self._existing(uid)
            run = self._runs[uid]
            new = tracking_rules.new_params(run.params, batch, limits)
            tags = {**run.tags, **tracking_rules.new_tags(run.tags, batch)}
            if batch.tags or batch.models:
                tracking_rules.check_number("tags", len(tags), limits.tags)
                tracking_rules.check_characters("tags", tags, limits.characters)
            if batch.values:
                self._metrics.log(uid, CLIENT_TASK, batch.values, metric_limits)
            run.params.update(new)
            run.tags = {key: value for key, value in tags.items() if key not in batch.removed_tags}
            if batch.name:
                self._change(row, RunChange(name=batch.name))
        if batch.name:
            self._notify()

    def params(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``TrackingStore.params``."""
        with self._reading():
            found = {uid: self._runs[uid].params for uid in uids if uid in self._runs}
            return {uid: dict(pairs) for uid, pairs in found.items() if pairs}

    def tags(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``TrackingStore.tags``."""
        with self._reading():
            found = {uid: self._runs[uid].tags for uid in uids if uid in self._runs}
            return {uid: dict(pairs) for uid, pairs in found.items() if pairs}

    def inputs(self, uids: Collection[str]) -> Mapping[str, str]:
        """See ``TrackingStore.inputs``."""
        with self._reading():
            lines = self._lines()
            there = [uid for uid in uids if uid in self._runs and uid in lines]
            return {uid: self._row(lines[uid]).inputs for uid in there}

    def last_values(
        self, uids: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[LastValue]]:
        """See ``TrackingStore.last_values``."""
        found: dict[str, Sequence[LastValue]] = {}
        for uid, lines in self._metrics.series_of(uids, names).items():
            values: dict[str, LastValue] = {}
            for one in sorted(
                lines, key=lambda one: precedence(one.source, one.last_at, one.last_step)
            ):
                values[one.name] = LastValue(one.name, one.last, one.last_step, one.last_at)
            if values:
                found[uid] = tracking_rules.sort_by_name(values)
        return found

    def search(self, run_search: RunSearch) -> RunPage:
        """See ``TrackingStore.search``."""
        with self._reading():
            lines = self._lines()
            there = [self._row(lines[uid]) for uid in self._runs if uid in lines]
            found = [
                run
                for run in sorted(there, key=lambda run: run.number, reverse=True)
                if run.org == run_search.org
                and (run_search.experiments is None or run.experiment in run_search.experiments)
                and run_search.view.admits(deleted=run.deleted)
                and fulfils(self._facts(run), run_search.conditions)
            ]
        if run_search.order:
            found = in_order(found, run_search.order, self._order_value)[run_search.after or 0 :]
        elif run_search.after is not None:
            found = [run for run in found if run.number < run_search.after]
        items = found[: run_search.limit]
        if len(found) <= run_search.limit:
            return RunPage(items, None)
        return RunPage(
            items,
            (run_search.after or 0) + run_search.limit if run_search.order else items[-1].number,
        )

    def _check_tags_of_all(self, after: Experiment) -> None:
        others = [one for one in self.experiments(after.org) if one.id != after.id]
        size = sum(map(tracking_rules.tag_characters, [*others, after]))
        tracking_rules.check_experiment_tags(after.org, size)

    def _change(self, run: RunRow, change: RunChange) -> RunRow:
        """Change the row of a run, and give its record a new revision if that is news."""
        row = tracking_rules.changed(run, change)
        self._runs[row.uid].change = RunChange(
            row.name, row.state, row.end, row.deleted, row.inputs, row.experiment
        )
        if not tracking_rules.is_news(run, row):
            return row
        return replace(row, revision=self._touch(row.uid))

    def _existing(self, uid: str) -> RunRow:
        line = self._lines().get(uid)
        if line is None or uid not in self._runs:
            raise tracking_rules.no_run(uid)
        return self._row(line)

    def _row(self, line: Summary) -> RunRow:
        run, is_job = self._runs[line.key.uid], line.key.kind == TRAIN_JOB.name
        state = state_of_phase(line.index) if is_job else run.made.state or RunState.RUNNING
        ended = is_job and state.ended
        row = RunRow(
            number=line.number,
            uid=line.key.uid,
            org=line.key.org,
            is_job=is_job,
            name=run.made.name,
            experiment=run.made.experiment,
            user=line.owner,
            state=state,
            start=run.made.start,
            end=round(line.updated_at.timestamp() * 1000) if ended else None,
            revision=self._revision_of(line.key.uid),
        )
        return tracking_rules.changed(row, run.change)

    def _facts(self, run: RunRow) -> FilteredEntity:
        record = self._runs[run.uid]
        metrics: dict[str, list[float]] = {}
        for one in self._metrics.series(run.uid):
            metrics.setdefault(one.name, []).append(one.last)
        attributes = {
            "run_id": run.uid,
            "run_name": run.name,
            "user_id": run.user,
            "start_time": run.start,
            "end_time": run.end,
            "status": run.state.value,
            "artifact_uri": artifact_uri(run.uid),
        }
        datasets = dataset_values(run.inputs)
        return FilteredEntity(attributes, record.params, record.tags, metrics, datasets)

    def _order_value(self, run: RunRow, key: OrderKey) -> Any:
        if key.entity is Entity.METRIC:
            last = self.last_values([run.uid], [key.key]).get(run.uid, ())
            return next((one.value for one in last if one.value == one.value), None)
        if key.key == "end_time" and run.is_job:
            return None  # as in a database
        return next(iter(self._facts(run).values(key.entity, key.key)), None)

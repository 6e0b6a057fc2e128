"""``SqlTrackingStore``: the contract of ``state.tracking`` on a SQL database."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, delete, func, select

from cloud_ml.domain.metrics import series as growing
from cloud_ml.domain.metrics.series import MetricLimits, precedence
from cloud_ml.domain.tracking.runs import (
    ATTEMPT_TAG,
    CLIENT_TASK,
    RUN,
    Experiment,
    LastValue,
    LogBatch,
    RunChange,
    RunRow,
    TrackingLimits,
)
from cloud_ml.errors import InvalidRequest
from cloud_ml.state import rules, tracking_rules
from cloud_ml.state.base import Once
from cloud_ml.state.sql import counters, marks, requests
from cloud_ml.state.sql import records as record_rows
from cloud_ml.state.sql.metrics.rows import SqlSeriesRows
from cloud_ml.state.sql.statements import ListStatement, Row
from cloud_ml.state.sql.tables import experiments, records, series
from cloud_ml.state.sql.tracking import rows, search
from cloud_ml.state.sql.tracking.rows import PARAMS, TAGS, KeyValueTable
from cloud_ml.state.sql.tracking.time_limit import SearchSlots, time_limit
from cloud_ml.state.sql.writer import Writer
from cloud_ml.state.tracking import RunPage, RunSearch, TrackingStore

Reading = Callable[[], AbstractContextManager[Connection]]
_LAST_COLUMNS = (
    series.c.run,
    series.c.name,
    series.c.last,
    series.c.last_step,
    series.c.last_at,
    series.c.source,
)


_NUMBERS = ListStatement(
    lambda among: select(records.c.number, records.c.uid).where(among(records.c.uid, "these"))
)
_LAST = ListStatement(lambda among: select(*_LAST_COLUMNS).where(among(series.c.run, "runs")))
_LAST_NAMED = ListStatement(
    lambda among: select(*_LAST_COLUMNS).where(
        among(series.c.run, "runs"), among(series.c.name, "names", indexed=False)
    )
)


class SqlTrackingStore(TrackingStore):
    """See ``TrackingStore``.

    Args:
        writer: The one writer of the database.
        reading: Lends a connection that reads.
        clock: Dates the changes of records.
    """

    def __init__(self, writer: Writer, reading: Reading, clock: Callable[[], datetime]) -> None:
        self._writer = writer
        self._reading = reading
        self._clock = clock
        self._slots = SearchSlots()

    def add_experiment(self, experiment: Experiment, *, most: int, once: Once | None) -> Experiment:
        """See ``TrackingStore.add_experiment``."""

        def work(connection: Connection) -> Experiment:
            marks.check_unseen(connection, once)
            org = experiment.org
            if (
                rows.experiment(connection, org, experiment.id)
                or rows.experiment_named(connection, org, experiment.name)
            ):  # fmt: skip
                raise tracking_rules.experiment_taken(experiment)
            count = select(func.count()).select_from(experiments).where(experiments.c.org == org)
            if connection.execute(count).scalar_one() >= most:
                raise tracking_rules.too_many_experiments(org, most)
            _check_tags_of_all(connection, None, experiment)
            made = replace(experiment, revision=_advance(connection))
            rows.add_experiment(connection, made)
            requests.use_up(connection, once, made.id)
            return made

        return self._writer.run(work)

    def change_experiment(
        self,
        org: str,
        id_: str,
        change: Callable[[Experiment], Experiment],
        *,
        once: Once | None,
    ) -> Experiment:
        """See ``TrackingStore.change_experiment``."""

        def work(connection: Connection) -> Experiment:
            marks.check_unseen(connection, once)
            stored = rows.experiment(connection, org, id_) if rules.is_storable(id_) else None
            before = tracking_rules.existing_experiment(stored, org, id_)
            after = change(before)
            named = rows.experiment_named(connection, org, after.name)
            if named is not None and named.id != id_:
                raise tracking_rules.experiment_taken(after)
            _check_tags_of_all(connection, stored, after)
            after = tracking_rules.with_revision(before, after, lambda: _advance(connection))
            write = rows.add_experiment if stored is None else rows.change_experiment
            write(connection, after)
            requests.use_up(connection, once, id_)
            return after

        return self._writer.run(work)

    def experiments(self, org: str) -> Sequence[Experiment]:
        """See ``TrackingStore.experiments``."""
        with self._reading() as connection:
            found = rows.EXPERIMENTS.rows(connection, {"its_org": org})
        return [rows.experiment_of(row) for row in found]

    def experiment(self, org: str, id_: str) -> Experiment | None:
        """See ``TrackingStore.experiment``."""
        if not rules.is_storable(id_):
            return None
        with self._reading() as connection:
            return rows.experiment(connection, org, id_)

    def find_experiment(self, org: str, name: str) -> Experiment | None:
        """See ``TrackingStore.find_experiment``."""
        if not rules.is_storable(name):
            return None
        with self._reading() as connection:
            return rows.experiment_named(connection, org, name)

    def experiment_changes(
        self, after: int, *, org: str | None = None, id_: str | None = None, limit: int
    ) -> Sequence[Experiment]:
        """See ``TrackingStore.experiment_changes``."""
        if org is not None and id_ is not None:
            found = self.experiment(org, id_)
            return [] if found is None or found.revision <= after else [found]
        with self._reading() as connection:
            return rows.experiment_changes(connection, after, org, limit=limit)

    def forget_experiments(self, org: str) -> None:
        """See ``TrackingStore.forget_experiments``."""
        forget = delete(experiments).where(experiments.c.org == org)
        self._writer.run(lambda connection: connection.execute(forget), wake=False)

    def run(self, uid: str) -> RunRow | None:
        """See ``TrackingStore.run``."""
        if not rules.is_storable(uid):
            return None
        with self._reading() as connection:
            return rows.find(connection, uid)

    def change_run(self, uid: str, change: RunChange, *, once: Once | None = None) -> RunRow:
        """See ``TrackingStore.change_run``."""
        now = self._clock()

        def work(connection: Connection) -> RunRow:
            marks.check_unseen(connection, once)
            after = _change(connection, _existing(connection, uid), change, now)
            requests.use_up(connection, once, uid)
            return after

        return self._writer.run(work, wake=tracking_rules.may_be_news(change))

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

        def work(connection: Connection) -> bool:
            marks.check_unseen(connection, once)
            run = _existing(connection, uid)
            if not tracking_rules.begins(TAGS.of(connection, run.number), attempt):
                return False
            batch = LogBatch(tags={**tags, ATTEMPT_TAG: str(attempt)})
            _log_tags(connection, run, batch, limits)
            rows.change(connection, tracking_rules.changed(run, RunChange(experiment=experiment)))
            requests.use_up(connection, once, uid)
            return True

        return self._writer.run(work, wake=False)

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
        now = self._clock()

        def work(connection: Connection) -> None:
            marks.check_unseen(connection, once)
            run = _existing(connection, uid)
            if batch.params:
                there = PARAMS.of(connection, run.number)
                new = tracking_rules.new_params(there, batch, limits)
                PARAMS.add(connection, run.number, run.org, new)
            if batch.tags or batch.removed_tags or batch.models:
                _log_tags(connection, run, batch, limits)
            if batch.name:
                _change(connection, run, RunChange(name=batch.name), now)
            if batch.values:
                kept = SqlSeriesRows(connection, run.number, run.org)
                values = growing.without_repeats(kept, CLIENT_TASK, batch.values)
                refused = growing.append(kept, CLIENT_TASK, 1, values, metric_limits)
                # All or nothing: the error also rolls back what was written above.
                if refused:
                    raise InvalidRequest("; ".join(refused[:5]), field="metrics")
            requests.use_up(connection, once, uid)

        self._writer.run(work, wake=bool(batch.name))

    def params(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``TrackingStore.params``."""
        return self._pairs(PARAMS, uids)

    def tags(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``TrackingStore.tags``."""
        return self._pairs(TAGS, uids)

    def inputs(self, uids: Collection[str]) -> Mapping[str, str]:
        """See ``TrackingStore.inputs``."""
        these = [uid for uid in uids if rules.is_storable(uid)]
        with self._reading() as connection:
            return dict(rows.INPUTS.tuples(connection, {"these": these}))

    def last_values(
        self, uids: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[LastValue]]:
        """See ``TrackingStore.last_values``."""
        these = [uid for uid in uids if rules.is_storable(uid)]
        with self._reading() as connection:
            # Not one statement: a thousand rows, each with a uid, take twice as long to read.
            uid_of = dict(_NUMBERS.tuples(connection, {"these": these}))
            if names is None:
                lines = _LAST.tuples(connection, {"runs": uid_of})
            else:
                named = [name for name in names if rules.is_storable(name)]
                lines = _LAST_NAMED.tuples(connection, {"runs": uid_of, "names": named})
        # By hand and without more objects than are needed: of fifty runs with twenty metrics, that
        # is half of a list's time.
        found: dict[int, dict[str, Row]] = {}
        for line in lines:
            of_run = found.get(line[0])
            if of_run is None:
                of_run = found[line[0]] = {}
            other = of_run.get(line[1])
            if other is None or _precedence(line) >= _precedence(other):
                of_run[line[1]] = line
        return {
            uid_of[number]: [
                LastValue(name, math.nan if last is None else last, step, at)
                for _, name, last, step, at, _ in map(of_run.__getitem__, sorted(of_run))
            ]
            for number, of_run in found.items()
        }

    def search(self, run_search: RunSearch) -> RunPage:
        """See ``TrackingStore.search``."""
        with self._slots.slot(run_search.seconds), self._reading() as connection:
            query = search.statement(run_search, connection.dialect.name)
            with time_limit(connection, run_search.seconds):
                found = connection.execute(query).all()
        items = list(map(rows.run_of, found[: run_search.limit]))
        if len(found) <= run_search.limit:
            return RunPage(items, None)
        return RunPage(
            items,
            (run_search.after or 0) + run_search.limit if run_search.order else items[-1].number,
        )

    def _pairs(
        self, pairs: KeyValueTable, uids: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        these = [uid for uid in uids if rules.is_storable(uid)]
        with self._reading() as connection:
            return pairs.of_many(connection, these)


def _precedence(line: Row) -> tuple[int, int, int]:
    _, _, _, step, at, source = line
    return precedence(source, at, step)


def _check_tags_of_all(
    connection: Connection, before: Experiment | None, after: Experiment
) -> None:
    """Bound what a list of experiments reads."""
    more = tracking_rules.tag_characters(after)
    more -= 0 if before is None else tracking_rules.tag_characters(before)
    if more > 0:
        of_org = experiments.c.org == after.org
        known = select(func.sum(func.length(experiments.c.tags))).where(of_org)
        there = connection.execute(known).scalar_one() or 0
        tracking_rules.check_experiment_tags(after.org, int(there) + more)


def _existing(connection: Connection, uid: str) -> RunRow:
    run = rows.find(connection, uid) if rules.is_storable(uid) else None
    if run is None:
        raise tracking_rules.no_run(uid)
    return run


def _change(connection: Connection, run: RunRow, change: RunChange, now: datetime) -> RunRow:
    """Change the row of a run, and give its record a new revision if that is news."""
    after = tracking_rules.changed(run, change)
    rows.change(connection, after)
    if not tracking_rules.is_news(run, after):
        return after
    revision = _advance(connection)
    record_rows.touch(connection, RUN, run.uid, revision=revision, now=now)
    return replace(after, revision=revision)


def _advance(connection: Connection) -> int:
    """Take a revision, which those who follow changes go by."""
    return counters.advance(connection, revisions=1).revision


def _log_tags(connection: Connection, run: RunRow, batch: LogBatch, limits: TrackingLimits) -> None:
    there = TAGS.of(connection, run.number)
    TAGS.remove(connection, run.number, [key for key in batch.removed_tags if key in there])
    tags = tracking_rules.new_tags(there, batch)
    new = {key: value for key, value in tags.items() if key not in there}
    tracking_rules.check_number("tags", len(there) + len(new), limits.tags)
    tracking_rules.check_characters("tags", {**there, **tags}, limits.characters)
    TAGS.add(connection, run.number, run.org, new)
    TAGS.change(connection, run.number, {key: tags[key] for key in tags if key in there})

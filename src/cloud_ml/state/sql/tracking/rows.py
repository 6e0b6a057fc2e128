"""Rows of ``runs``, ``run_params``, ``run_tags`` and ``experiments``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.tracking.runs import (
    VALUE_HEAD,
    Experiment,
    NewRun,
    RunRow,
    RunState,
    state_of_phase,
)
from cloud_ml.state.sql.statements import ListStatement, Row, Statement
from cloud_ml.state.sql.tables import experiments, records, run_params, run_tags, runs

RUN_COLUMNS = (
    records.c.number, records.c.uid, records.c.org, records.c.kind, records.c.owner,
    records.c.index_value, records.c.updated_at, runs.c.name, runs.c.experiment, runs.c.state,
    runs.c.start, runs.c.end, runs.c.deleted, records.c.revision,
)  # fmt: skip
_CHANGED = ("name", "state", "end", "deleted", "inputs", "experiment")
INPUTS = ListStatement(
    lambda among: (
        select(records.c.uid, runs.c.inputs)
        .join(records, records.c.number == runs.c.number)
        .where(among(records.c.uid, "these"))
    )
)
_ADD = Statement(insert(runs))
_RUN = Statement(
    select(*RUN_COLUMNS, runs.c.inputs)
    .join(runs, runs.c.number == records.c.number)
    .where(records.c.uid == bindparam("this"))
)
_CHANGE = Statement(
    update(runs)
    .where(runs.c.number == bindparam("its_number"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGED})
)
_E = experiments.c
_THIS_EXPERIMENT = (_E.org == bindparam("its_org")) & (_E.id == bindparam("its_id"))
_ADD_EXPERIMENT = Statement(insert(experiments))
_CHANGE_EXPERIMENT = Statement(
    update(experiments)
    .where(_THIS_EXPERIMENT)
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("name", "updated", "deleted", "tags", "revision")
        }
    )
)
_EXPERIMENT = Statement(select(experiments).where(_THIS_EXPERIMENT))
EXPERIMENTS = Statement(
    select(experiments)
    .where(_E.org == bindparam("its_org"))
    .order_by(_E.created.desc(), _E.id.desc())
)
_NEWER = (
    select(experiments)
    .where(_E.revision > bindparam("after"))
    .order_by(_E.revision)
    .limit(bindparam("rows"))
)
CHANGES = Statement(_NEWER)
"""The experiments of all organisations, by their newest change: walks the index on the revision."""
_CHANGES_OF_ORG = Statement(_NEWER.where(_E.org == bindparam("its_org")))
_NAMED = Statement(
    select(experiments).where(_E.org == bindparam("its_org"), _E.name == bindparam("its_name"))
)


class KeyValueTable:
    """A table of texts of runs by their keys."""

    def __init__(self, table: Table) -> None:
        columns = table.c
        this = (columns.run == bindparam("its_run")) & (columns.key == bindparam("its_key"))
        self.table = table
        self._add = Statement(insert(table))
        self._all = Statement(
            select(columns.key, columns.value).where(columns.run == bindparam("its_run"))
        )
        self._set = Statement(
            update(table)
            .where(this)
            .values(head=bindparam("new_head"), value=bindparam("new_value"))
        )
        self._remove = Statement(delete(table).where(this))
        self._of_many = ListStatement(
            lambda among: (
                select(records.c.uid, columns.key, columns.value)
                .join(records, records.c.number == columns.run)
                .where(among(records.c.uid, "these"))
            )
        )

    def add(self, connection: Connection, run: int, org: str, pairs: Mapping[str, str]) -> None:
        """Add pairs that are not there."""
        if pairs:
            self._add.run_many(
                connection,
                [
                    {"run": run, "key": key, "org": org, "head": value[:VALUE_HEAD], "value": value}
                    for key, value in pairs.items()
                ],
            )

    def of(self, connection: Connection, run: int) -> dict[str, str]:
        """All pairs of a run."""
        return {row.key: row.value for row in self._all.rows(connection, {"its_run": run})}

    def change(self, connection: Connection, run: int, pairs: Mapping[str, str]) -> None:
        """Give pairs that are there other values."""
        for key, value in pairs.items():
            self._set.run(
                connection,
                {
                    "its_run": run,
                    "its_key": key,
                    "new_head": value[:VALUE_HEAD],
                    "new_value": value,
                },
            )

    def remove(self, connection: Connection, run: int, keys: Collection[str]) -> None:
        """Remove pairs."""
        for key in keys:
            self._remove.run(connection, {"its_run": run, "its_key": key})

    def of_many(
        self, connection: Connection, uids: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """The pairs of several runs."""
        found: dict[str, dict[str, str]] = {}
        for uid, key, value in self._of_many.tuples(connection, {"these": uids}):
            found.setdefault(uid, {})[key] = value
        return found


PARAMS, TAGS = KeyValueTable(run_params), KeyValueTable(run_tags)


def add(connection: Connection, number: int, org: str, run: NewRun) -> None:
    """Write the row of a run whose record was just made."""
    _ADD.run(
        connection,
        {
            "number": number,
            "org": org,
            "experiment": run.experiment,
            "deleted": 0,
            "name": run.name,
            "state": run.state and run.state.value,
            "start": run.start,
            "end": None,
            "inputs": "[]",
        },
    )
    PARAMS.add(connection, number, org, run.params)
    TAGS.add(connection, number, org, run.tags)


def find(connection: Connection, uid: str) -> RunRow | None:
    """A run."""
    row = _RUN.one_or_none(connection, {"this": uid})
    return None if row is None else run_of(row, row.inputs)


def change(connection: Connection, run: RunRow) -> None:
    """Write the row of a run that is there."""
    values = {
        "its_number": run.number,
        "new_name": run.name,
        "new_state": None if run.is_job else run.state.value,
        "new_end": None if run.is_job else run.end,
        "new_deleted": int(run.deleted),
        "new_inputs": run.inputs,
        "new_experiment": run.experiment,
    }
    _CHANGE.run(connection, values)


def run_of(row: Row, inputs: str = "[]") -> RunRow:
    """A row of ``RUN_COLUMNS``. What a job's record says comes first."""
    # Taken apart at once: a page has hundreds of rows, and a look at each column by its name takes
    # longer than the search.
    (
        number, uid, org, kind, user, phase, updated_at, name, experiment, state, start, end, deleted,
        revision,
    ) = row[: len(RUN_COLUMNS)]  # fmt: skip
    is_job = kind == TRAIN_JOB.name
    run_state = state_of_phase(phase) if is_job else RunState(state)
    return RunRow(
        number=number,
        uid=uid,
        org=org,
        is_job=is_job,
        name=name,
        experiment=experiment,
        user=user,
        state=run_state,
        start=start,
        end=_milliseconds(updated_at) if is_job and run_state.ended else end,
        deleted=bool(deleted),
        inputs=inputs,
        revision=revision,
    )


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def add_experiment(connection: Connection, experiment: Experiment) -> None:
    """Write a new experiment."""
    _ADD_EXPERIMENT.run(
        connection,
        {
            "org": experiment.org,
            "id": experiment.id,
            "name": experiment.name,
            "created": experiment.created,
            "updated": experiment.updated,
            "deleted": int(experiment.deleted),
            "tags": json.dumps(dict(experiment.tags)),
            "revision": experiment.revision,
        },
    )


def change_experiment(connection: Connection, experiment: Experiment) -> None:
    """Write one that is there."""
    values: dict[str, Any] = {
        "its_org": experiment.org,
        "its_id": experiment.id,
        "new_name": experiment.name,
        "new_updated": experiment.updated,
        "new_deleted": int(experiment.deleted),
        "new_tags": json.dumps(dict(experiment.tags)),
        "new_revision": experiment.revision,
    }
    _CHANGE_EXPERIMENT.run(connection, values)


def experiment(connection: Connection, org: str, id_: str) -> Experiment | None:
    """The one of that id."""
    row = _EXPERIMENT.one_or_none(connection, {"its_org": org, "its_id": id_})
    return None if row is None else experiment_of(row)


def experiment_named(connection: Connection, org: str, name: str) -> Experiment | None:
    """The one of that name."""
    row = _NAMED.one_or_none(connection, {"its_org": org, "its_name": name})
    return None if row is None else experiment_of(row)


def experiment_changes(
    connection: Connection, after: int, org: str | None, *, limit: int
) -> list[Experiment]:
    """Those behind a revision, of all organisations or of one."""
    values: dict[str, Any] = {"after": after, "rows": limit}
    if org is None:
        found = CHANGES.rows(connection, values)
    else:
        found = _CHANGES_OF_ORG.rows(connection, {**values, "its_org": org})
    return [experiment_of(row) for row in found]


def experiment_of(row: Row) -> Experiment:
    """A row of ``experiments``."""
    return Experiment(
        id=row.id,
        org=row.org,
        name=row.name,
        created=row.created,
        updated=row.updated,
        deleted=bool(row.deleted),
        tags=json.loads(row.tags),
        revision=row.revision,
    )

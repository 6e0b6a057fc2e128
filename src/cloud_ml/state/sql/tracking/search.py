"""A search for runs as one statement. Everything that a caller wrote is a bound value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
)

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.tracking import matching
from cloud_ml.domain.tracking.artifacts import ARTIFACTS_AFTER, ARTIFACTS_BEFORE
from cloud_ml.domain.tracking.filters import Comparison, Entity, Operator, OrderKey
from cloud_ml.domain.tracking.runs import (
    ENDED_PHASES,
    VALUE_HEAD,
    RunState,
    View,
    phases_of,
    state_of_phase,
)
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.state.sql.tables import records, run_params, run_tags, runs, series
from cloud_ml.state.sql.tracking.datasets import of_dataset
from cloud_ml.state.sql.tracking.rows import RUN_COLUMNS
from cloud_ml.state.sql.tracking.times import moment_of
from cloud_ml.state.tracking import RunSearch

_PAIRS: Mapping[Entity, Table] = {Entity.PARAM: run_params, Entity.TAG: run_tags}
_COMPARE: Mapping[Operator, Callable[[Any, Any], ColumnElement[bool]]] = {
    Operator.EQ: lambda column, value: column == value,
    Operator.NE: lambda column, value: column != value,
    Operator.LT: lambda column, value: column < value,
    Operator.GT: lambda column, value: column > value,
    Operator.LE: lambda column, value: column <= value,
    Operator.GE: lambda column, value: column >= value,
    Operator.IN: lambda column, value: column.in_(value),
    Operator.NOT_IN: lambda column, value: column.not_in(value),
}
_STATE = case(
    {phase.value: state_of_phase(phase.value).value for phase in Phase},
    value=records.c.index_value,
    else_=RunState.RUNNING.value,
)
_COLUMNS: Mapping[str, Any] = {
    "run_id": records.c.uid,
    "run_name": runs.c.name,
    "user_id": records.c.owner,
    "start_time": runs.c.start,
    "end_time": runs.c.end,
    "status": func.coalesce(runs.c.state, _STATE),
    "artifact_uri": literal(ARTIFACTS_BEFORE) + records.c.uid + literal(ARTIFACTS_AFTER),
}


def statement(run_search: RunSearch, dialect: str) -> Select[Any]:
    """The statement of a page; one row more than the page tells whether it is the last.

    A parameter or tag that equals a value is looked up in its index, newest run first. Else the
    runs are walked through, newest first.
    """
    conditions = list(run_search.conditions)
    looked_up = next((one for one in conditions if _is_indexed(one)), None)
    query = select(*RUN_COLUMNS)
    newest: Any = runs.c.number
    if looked_up is None:
        query = query.select_from(runs.join(records, records.c.number == runs.c.number))
    else:
        conditions.remove(looked_up)
        pairs = _PAIRS[looked_up.entity]
        newest = pairs.c.run
        query = query.select_from(
            pairs.join(runs, runs.c.number == pairs.c.run).join(
                records, records.c.number == runs.c.number
            )
        ).where(pairs.c.org == run_search.org, *_equals(pairs, looked_up))
    query = query.where(runs.c.org == run_search.org)
    if run_search.experiments is not None:
        query = query.where(_one_of(runs.c.experiment, list(run_search.experiments)))
    if run_search.view is not View.ALL:
        query = query.where(runs.c.deleted == int(run_search.view is View.DELETED))
    query = query.where(*(_condition(one, dialect) for one in conditions))
    if not run_search.order:
        if run_search.after is not None:
            query = query.where(newest < run_search.after)
        return query.order_by(newest.desc()).limit(run_search.limit + 1)
    keys = [_order(key) for key in run_search.order]
    return (
        query.order_by(*keys, newest.desc())
        .offset(run_search.after or 0)
        .limit(run_search.limit + 1)
    )


def _is_indexed(one: Comparison) -> bool:
    return one.entity in _PAIRS and one.operator is Operator.EQ


def _one_of(column: Any, values: list[str]) -> ColumnElement[bool]:
    """A single value is compared: then an index keeps the order of what follows it."""
    if len(values) == 1:
        return column == values[0]  # type: ignore[no-any-return]
    return column.in_(values)  # type: ignore[no-any-return]


def _equals(pairs: Table, one: Comparison) -> tuple[ColumnElement[bool], ...]:
    value = str(one.value)
    return pairs.c.key == one.key, pairs.c.head == value[:VALUE_HEAD], pairs.c.value == value


def _condition(one: Comparison, dialect: str) -> ColumnElement[bool]:
    if one.entity is Entity.METRIC:
        return _of_metric(one)
    if one.entity is Entity.DATASET:
        return of_dataset(one, lambda column: _compare(column, one, dialect), dialect)
    if one.entity in _PAIRS:
        return _of_pair(_PAIRS[one.entity], one, dialect)
    if one.key == "status":
        return _of_state(one)
    if one.key == "end_time":
        return _of_end(one)
    return _compare(_COLUMNS[one.key], one, dialect)


def _of_metric(one: Comparison) -> ColumnElement[bool]:
    """A metric that is NaN is there, and compares with nothing."""
    this = (series.c.run == runs.c.number) & (series.c.name == one.key)
    if one.operator is Operator.IS_NULL:
        return not_(_there(this))
    if one.operator is Operator.IS_NOT_NULL:
        return _there(this)
    return _there(this, _COMPARE[one.operator](series.c.last, one.value))


def _of_pair(pairs: Table, one: Comparison, dialect: str) -> ColumnElement[bool]:
    this = (pairs.c.run == runs.c.number) & (pairs.c.key == one.key)
    if one.operator is Operator.IS_NULL:
        return not_(_there(this))
    if one.operator is Operator.IS_NOT_NULL:
        return _there(this)
    return _there(this, _compare(pairs.c.value, one, dialect))


def _there(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the run has such a row. The table may stand in the search, too, as an index."""
    return exists().where(*conditions).correlate(runs)


def _of_state(one: Comparison) -> ColumnElement[bool]:
    """There are five states: which of them are meant is decided here."""
    states = [state.value for state in RunState if matching.compares(state.value, one)]
    of_jobs = and_(runs.c.state.is_(None), records.c.index_value.in_(phases_of(states)))
    return or_(runs.c.state.in_(states), of_jobs)


def _of_end(one: Comparison) -> ColumnElement[bool]:
    """The end of a job is when its record changed last."""
    over = and_(records.c.kind == TRAIN_JOB.name, records.c.index_value.in_(ENDED_PHASES))
    if one.operator is Operator.IS_NOT_NULL:
        return or_(runs.c.end.is_not(None), over)
    if one.operator is Operator.IS_NULL:
        return and_(runs.c.end.is_(None), not_(over))
    compare = _COMPARE[one.operator]
    assert isinstance(one.value, float)
    jobs = and_(over, compare(records.c.updated_at, moment_of(one.value)))
    return or_(compare(runs.c.end, one.value), jobs)


def _compare(column: Any, one: Comparison, dialect: str) -> ColumnElement[bool]:
    if one.operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        absent = one.operator is Operator.IS_NULL
        return column.is_(None) if absent else column.is_not(None)  # type: ignore[no-any-return]
    if one.operator in (Operator.LIKE, Operator.ILIKE):
        return _like(column, str(one.value), dialect, ignore_case=one.operator is Operator.ILIKE)
    return _COMPARE[one.operator](column, one.value)


def _like(column: Any, pattern: str, dialect: str, *, ignore_case: bool) -> ColumnElement[bool]:
    """A text of a form, which knows no escapes. ``LIKE`` of SQLite takes a letter for its capital,
    so ``GLOB`` stands for it.
    """
    if dialect == "sqlite" and not ignore_case:
        signs = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
        glob = "".join(signs.get(letter, letter) for letter in pattern)
        return column.op("GLOB", is_comparison=True)(glob)  # type: ignore[no-any-return]
    escaped = pattern.replace("\\", "\\\\")
    how = column.ilike if ignore_case and dialect != "sqlite" else column.like
    return how(escaped, escape="\\")  # type: ignore[no-any-return]


def _order(key: OrderKey) -> Any:
    """What lacks a value stands last."""
    by = _ordered_by(key)
    return (by.asc() if key.ascending else by.desc()).nulls_last()


def _ordered_by(key: OrderKey) -> Any:
    if key.entity is Entity.ATTRIBUTE:
        return _COLUMNS[key.key]
    if key.entity is Entity.METRIC:
        return (
            select(series.c.last)
            .where(series.c.run == runs.c.number, series.c.name == key.key)
            .order_by(series.c.last_at.desc())
            .limit(1)
            .correlate(runs)
            .scalar_subquery()
        )
    pairs = _PAIRS[key.entity]
    return (
        select(pairs.c.value)
        .where(pairs.c.run == runs.c.number, pairs.c.key == key.key)
        .correlate(runs)
        .scalar_subquery()
    )

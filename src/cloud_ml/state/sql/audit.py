"""The audit log: rows are added and, when they are old, dropped; nothing changes them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.state import rules
from cloud_ml.state.base import Once, Page
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import audit

_INSERT = Statement(insert(audit))
_FIELDS = tuple(field.name for field in dataclasses.fields(AuditEntry))
_SAME = ("org", "user", "key", "outcome")
_BEGINNING = ("operation", "target")


def append(connection: Connection, entry: AuditEntry) -> None:
    """Add an entry; it gets its id here."""
    stored = rules.bound_entry(entry)
    _INSERT.run(connection, {name: getattr(stored, name) for name in _FIELDS if name != "id"})


def append_of(connection: Connection, once: Once | None, name: str) -> None:
    """Add the entry of a mutation to the transaction that carries it out; ``name`` is what it is
    about.
    """
    if once is not None and once.entry is not None:
        append_now(connection, once.entry.about(name))


def append_now(connection: Connection, entry: AuditEntry) -> None:
    """Add an entry with the time of its transaction, so that times follow the order of entries.
    Its request may have begun long before, as that of an upload.
    """
    append(connection, dataclasses.replace(entry, at=rules.utc_now()))


def page(
    connection: Connection, audit_filter: AuditFilter, *, after: int | None, limit: int
) -> Page[AuditEntry]:
    """Read one page, newest first."""
    query = (
        select(audit).where(*_conditions(audit_filter)).order_by(audit.c.id.desc()).limit(limit + 1)
    )
    if after is not None:
        query = query.where(audit.c.id < after)
    rows = connection.execute(query).all()
    shown = tuple(_entry(row) for row in rows[:limit])
    return Page(shown, shown[-1].id if len(rows) > limit else None)


def _conditions(audit_filter: AuditFilter) -> list[ColumnElement[bool]]:
    conditions = [
        audit.c[name] == value
        for name in _SAME
        if (value := getattr(audit_filter, name)) is not None
    ]
    # not LIKE, which minds upper and lower case on one database and not on the other
    conditions += [
        func.substr(audit.c[name], 1, len(beginning)) == beginning
        for name in _BEGINNING
        if (beginning := getattr(audit_filter, name))
    ]
    if audit_filter.since is not None:
        conditions.append(audit.c.at >= audit_filter.since)
    if audit_filter.until is not None:
        conditions.append(audit.c.at < audit_filter.until)
    return conditions


def _entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(**{name: getattr(row, name) for name in _FIELDS})

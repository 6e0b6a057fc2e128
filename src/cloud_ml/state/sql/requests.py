"""The request behind a change: its token, which counts once, and its entry in the audit log.

Each function takes the connection of the transaction that makes the change.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from cloud_ml.domain.records import Kind
from cloud_ml.state import rules
from cloud_ml.state.base import Once
from cloud_ml.state.sql import audit, marks, records
from cloud_ml.state.sql.statements import Row


def claim_row(connection: Connection, kind: Kind[Any, Any], uid: str, once: Once | None) -> Row:
    """The row a request wants to change; its token is used up even if nothing changes.

    Raises:
        Unauthenticated: The token was seen before.
        NotFound: No such record.
    """
    row = find_row(connection, kind, uid, once)
    use_up(connection, once, row.name)
    return row


def find_row(connection: Connection, kind: Kind[Any, Any], uid: str, once: Once | None) -> Row:
    """The row a request wants to change, if its token is new.

    Raises:
        Unauthenticated: The token was seen before.
        NotFound: No such record.
    """
    marks.check_unseen(connection, once)
    row = records.get(connection, kind, uid)
    if row is None:
        raise rules.not_found(kind, uid)
    return row


def use_up(connection: Connection, once: Once | None, name: str) -> None:
    """Note the token of a mutation, and in the audit log whose it was."""
    marks.add_token(connection, once)
    audit.append_of(connection, once, name)

"""Everything that differs from one database to the next; the rest of ``state.sql`` is portable."""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from cloud_ml.errors import InvalidRequest
from cloud_ml.state.sql.dialects import sqlite
from cloud_ml.state.sql.dialects.base import Database

__all__ = ["Database", "open_database"]

_OPENERS = {"sqlite": sqlite.open_database}


def open_database(url: str, *, create: bool) -> Database:
    """Open the database at ``url``, check it, and bring its tables to this version.

    Raises:
        InvalidRequest: ``url`` names no database of a kind we know. The message shows no password.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise _unknown("not a URL") from None
    opener = _OPENERS.get(parsed.get_backend_name())
    if opener is None:
        raise _unknown(parsed.get_backend_name())
    return opener(parsed, create=create)


def _unknown(value: str) -> InvalidRequest:
    allowed = ", ".join(f"{name}:…" for name in _OPENERS)
    return InvalidRequest(
        f"server.database_url is {value}; allowed is {allowed}",
        field="server.database_url",
        value=value,
        allowed=allowed,
    )

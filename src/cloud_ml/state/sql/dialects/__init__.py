"""Everything that differs from one database to the next; the rest of ``state.sql`` is portable."""

from __future__ import annotations

import importlib
from typing import cast

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.state.sql.dialects.base import READERS, Database, Dialect

__all__ = ["Database", "dialect_of", "open_database"]

_DIALECTS = ("sqlite", "postgresql")


def open_database(url: str, *, create: bool, readers: int = READERS) -> Database:
    """Open the database at ``url``, check it, and bring its tables to this version.

    Raises:
        InvalidRequest: ``url`` names no database of a kind we know. The message shows no password.
        Unavailable: The driver of that kind is not installed, or the database does not answer.
    """
    dialect, parsed = dialect_of(url)
    return dialect.open_database(parsed, create=create, readers=readers)


def dialect_of(url: str) -> tuple[Dialect, URL]:
    """The room for the kind of database that ``url`` names; its driver is imported only now.

    Raises:
        InvalidRequest: ``url`` names no database of a kind we know. The message shows no password.
        Unavailable: The driver is not installed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError
        raise _unknown("not a URL") from None
    kind = parsed.get_backend_name()
    if kind not in _DIALECTS:
        raise _unknown(kind)
    try:
        module = importlib.import_module(f"{__name__}.{kind}")
    except ImportError as error:
        raise Unavailable(
            f"the driver of {kind} is not installed ({error.name or error} is missing)",
            hint=f"pip install 'cloud-ml[{'postgres' if kind == 'postgresql' else 'server'}]'",
        ) from error
    return cast("Dialect", module), parsed


def _unknown(value: str) -> InvalidRequest:
    allowed = ", ".join(f"{name}:…" for name in _DIALECTS)
    return InvalidRequest(
        f"server.database_url is {value}; allowed is {allowed}",
        field="server.database_url",
        value=value,
        allowed=allowed,
    )

"""What PostgreSQL's errors say of the machine, told without passwords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from sqlalchemy import URL

from cloud_ml.errors import CloudMlError, Conflict, Damaged, OutOfSpace, Unavailable

_DISK_FULL = "53100"
_READ_ONLY = "25006"
_TABLE_IS_THERE = "42P07"
# undefined_table, undefined_column, invalid_schema_name.
_TABLES_ARE_GONE = {"42P01", "42703", "3F000"}
_NOT_ALLOWED = "42501"
_NO_ANSWER = {_NOT_ALLOWED, "55P03", "57014", "25P03"}  # also: locked, over its time, stalled
_NO_ANSWER_CLASSES = {
    "08",  # the connection
    "28",  # who we are
    "3D",  # no such database
    "40",  # deadlock, serialization
    "53",  # memory, connections; the full disk has its own word
    "57",  # shut down, starting up
    "58",  # the system below
}
_DAMAGED_CLASS = "XX"
_SECRET_WORDS = ("password", "sslpassword")


@dataclass(frozen=True)
class DatabaseName:
    """A database as messages call it, and what they must not say."""

    name: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(url: URL) -> DatabaseName:
        """The place a URL names: user, host, port and database, nothing else of it."""
        host = url.host or ",".join(_all(url.query, "host"))
        shown = URL.create("postgresql", url.username, None, host or None, url.port, url.database)
        secrets = [
            str(url.password or ""),
            *(value for word in _SECRET_WORDS for value in _all(url.query, word)),
        ]
        return DatabaseName(
            shown.render_as_string().replace("%2F", "/"),
            tuple(secret for secret in secrets if secret),
        )

    def failure_text(self, error: BaseException) -> str:
        """What ``error`` says, in one line and without secrets."""
        text = " ".join(str(error).split())
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def translate(error: BaseException | None, place: DatabaseName) -> CloudMlError | None:
    """The error of ours that ``error`` amounts to; ``None`` if it is no matter of the machine."""
    if not isinstance(error, psycopg.Error):
        return None
    state, reason = error.sqlstate or "", place.failure_text(error)
    if state in (_DISK_FULL, _READ_ONLY):
        return OutOfSpace(
            f"The database {place.name} is full or read-only ({reason})",
            hint="Free some space, or connect to the primary; reads still work.",
            public_message="The server's database is full or read-only",
        )
    if state[:2] == _DAMAGED_CLASS or state in _TABLES_ARE_GONE:
        return damaged(place, reason)
    if state == _TABLE_IS_THERE:
        return Conflict(
            f"The database {place.name} has tables of something else ({reason})",
            hint="Give us our own.",
        )
    if (
        state in _NO_ANSWER
        or state[:2] in _NO_ANSWER_CLASSES
        or (not state and _is_of_the_connection(error))
    ):
        return _unavailable(place, state, reason)
    return None


_NO_ANSWER_PUBLIC = "The server's database does not answer"
"""What callers get: the reason has the address of the database. It is in the server's log."""


def _unavailable(place: DatabaseName, state: str, reason: str) -> Unavailable:
    """It answered with a refusal, or not at all.

    libpq gives no code while it connects. PostgreSQL's own refusals begin with ``FATAL`` then, in
    every language of which we know.
    """
    if state == _NOT_ALLOWED:
        return Unavailable(
            f"The database {place.name} does not allow this to its user ({reason})",
            hint="Make this user the owner of the database and its tables.",
            public_message=_NO_ANSWER_PUBLIC,
        )
    if "FATAL:" in reason or "no password supplied" in reason:
        return Unavailable(
            f"The database {place.name} refuses the connection ({reason})",
            hint="Check user, password and database in server.database_url. The password may also "
            "stand in ~/.pgpass of the server's user.",
            public_message=_NO_ANSWER_PUBLIC,
        )
    return Unavailable(
        f"The database {place.name} does not answer ({reason})",
        hint="Check that PostgreSQL runs, and the host and port in server.database_url.",
        public_message=_NO_ANSWER_PUBLIC,
    )


RESTORE = "Restore a backup with pg_restore; 'cloudml server restore' prints the command."
RESTORE_OR_NAME = f"{RESTORE} If the server used another database, name it with --database-url."


def damaged(place: DatabaseName, detail: str, hint: str = RESTORE) -> Damaged:
    """The refusal of a database that cannot be trusted."""
    return Damaged(
        f"The database {place.name} is damaged ({detail}). It is left as it is.",
        hint=hint,
        public_message="The server's database is damaged. It is left as it is.",
    )


def _is_of_the_connection(error: psycopg.Error) -> bool:
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def _all(query: Mapping[str, Sequence[str] | str], word: str) -> Sequence[str]:
    value = query.get(word, ())
    return (value,) if isinstance(value, str) else value

"""What SQLite's errors say of the machine."""

from __future__ import annotations

import sqlite3

from cloud_ml.errors import CloudMlError, Damaged, OutOfSpace, Unavailable

_FULL_OR_READ_ONLY = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}
_FULL_BY_ANOTHER_NAME = {sqlite3.SQLITE_IOERR_SHMSIZE}  # the shared index of the log could not grow
_NO_ANSWER = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def translate(error: BaseException | None, path: str) -> CloudMlError | None:
    """The error of ours that ``error`` amounts to; ``None`` if it is no matter of the machine."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    # Extended codes have the primary one in their low byte.
    primary = code & 0xFF
    if primary in _FULL_OR_READ_ONLY or code in _FULL_BY_ANOTHER_NAME:
        return OutOfSpace(
            f"The disk of {path} is full or read-only ({error})",
            hint="Free some space; reads still work.",
            public_message=f"The disk of the server's database is full or read-only ({error})",
        )
    if primary in _DAMAGED:
        return damaged(path, str(error))
    if primary in _NO_ANSWER:
        return Unavailable(
            f"The database {path} does not answer ({error})",
            public_message=f"The server's database does not answer ({error})",
        )
    return None


RESTORE = "Restore a backup with 'cloudml server restore'."
RESTORE_OR_NAME = f"{RESTORE} If the server used another database, name it with --database-url."


def damaged(path: str, detail: str, hint: str = RESTORE) -> Damaged:
    """The refusal of a database that cannot be trusted."""
    return Damaged(
        f"The database {path} is damaged ({detail}). It is left as it is.",
        hint=hint,
        public_message=f"The server's database is damaged ({detail}). It is left as it is.",
    )

"""Secrets: that the sealing key is there, and that it opens what is in the database."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.domain.secrets import SEALING_KEY, SECRET
from cloud_ml.errors import CloudMlError
from cloud_ml.sealing import KeyFile, NoSealingKey
from cloud_ml.settings import Settings
from cloud_ml.state.sql.inspection import all_specs

_AREA = Area("secrets")
_PUT_BACK = "put the file of the database's first server, or your copy of it, there; the setting is secrets.key_file"


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at the file of the key, and at the secrets of the database; nothing is opened or
    changed.
    """
    file = KeyFile(settings.sealing_key_file)
    try:
        sealed = [one.sealed for one in all_specs(settings.database_url, SECRET)]
        first = [one.id for one in all_specs(settings.database_url, SEALING_KEY)]
    except CloudMlError:  # the area of the database says what is wrong with it
        sealed, first = [], []
    try:
        yield _key(file, first)
    except NoSealingKey as error:
        yield _AREA.problem("sealing key", error.message, _PUT_BACK)
    if sealed:
        closed = sum(not file.opens(one) for one in sealed)
        if closed:
            yield _AREA.problem(
                "values", f"{closed} of {len(sealed)} secrets cannot be read", _PUT_BACK
            )
        else:
            yield _AREA.ok("values", f"{len(sealed)}, each of which can be read")


def _key(file: KeyFile, first: list[str]) -> Finding:
    keys = file.keys()
    if not keys:
        if first:
            return _AREA.problem("sealing key", f"{file.path} is missing", _PUT_BACK)
        return _AREA.ok("sealing key", f"{file.path}, made at the first start")
    if file.path.stat().st_mode & 0o077:
        return _AREA.warning(
            "sealing key", f"others may read {file.path}", f"chmod 600 {file.path}"
        )
    if not {key.id for key in keys} & set(first) and first:
        message = f"{file.path} is not the key that the first server of this database made"
        return _AREA.warning("sealing key", message, "all servers of a database need the same key")
    return _AREA.ok(
        "sealing key", f"{file.path}; keep a copy, and not beside backups of the database"
    )

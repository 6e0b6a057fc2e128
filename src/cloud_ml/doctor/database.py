"""The database: that it answers, and whose version its tables are."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml import data_folder
from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.errors import CloudMlError
from cloud_ml.settings import Settings
from cloud_ml.state.sql.inspection import DatabaseInspection, inspect_database
from cloud_ml.state.sql.migrations import HEAD

_AREA = Area("database")


def examine(settings: Settings) -> Iterator[Finding]:
    """Ask the database what it is; nothing is changed."""
    try:
        found = inspect_database(settings.database_url)
    except CloudMlError as error:
        yield _AREA.problem("kind", error.message, error.hint or "`cloudml server check` says more")
        return
    if found.missing_file is None:
        yield _AREA.ok("kind", f"{found.program}, {found.address}")
        yield _schema(found)
    elif data_folder.has_been_used(settings.data_dir):
        message = f"{found.missing_file} is missing, though a server has used {settings.data_dir}"
        yield _AREA.problem(
            "kind", message, "`cloudml server restore BACKUP`; no server starts empty in its place"
        )
    else:
        yield _AREA.ok("kind", f"{found.program}, made at the first start: {found.missing_file}")


def _schema(found: DatabaseInspection) -> Finding:
    if found.schema is None:
        return _AREA.ok("schema", "none yet; made at the first start")
    if found.schema > HEAD:
        message = f"{found.schema}, written by a newer version; this one's is {HEAD}"
        return _AREA.problem(
            "schema", message, "install the newer version again, or restore an older backup"
        )
    if found.schema < HEAD:
        message = f"{found.schema}, older than this version's {HEAD}"
        return _AREA.warning(
            "schema", message, "the next start renews it; `cloudml server backup TARGET` before"
        )
    return _AREA.ok("schema", f"{found.schema}, this version's")

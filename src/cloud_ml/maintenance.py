"""What an operator does to the database beside running a server: copy it, put it back, renew it,
look it over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml import data_folder, failpoints
from cloud_ml.domain.access_tokens import ACCESS_TOKEN
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.quotas import APPLICATION, QUOTA
from cloud_ml.domain.records import Kind
from cloud_ml.domain.secrets import SEALING_KEY, SECRET
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.tenancy import ACCESS_KEY, BUCKET, ORGANISATION, ORGANISATION_NUMBER, USER
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.tracking.models import LOGGED_MODEL
from cloud_ml.domain.tracking.registry import MODEL_VERSION, REGISTERED_MODEL
from cloud_ml.domain.tracking.runs import RUN
from cloud_ml.settings import Settings
from cloud_ml.state.sql import backup as copies
from cloud_ml.state.sql.dialects import open_database
from cloud_ml.state.sql.migrations import HEAD
from cloud_ml.state.sql.verify import verify
from cloud_ml.usecases.clock import system_clock

KINDS: dict[str, Kind[Any, Any]] = {
    kind.name: kind
    for kind in (
        TRAIN_JOB,
        MODEL_SERVICE,
        REPLICA,
        STUDY,
        TENSORBOARD,
        RUN,
        LOGGED_MODEL,
        REGISTERED_MODEL,
        MODEL_VERSION,
        ORGANISATION,
        ORGANISATION_NUMBER,
        USER,
        ACCESS_KEY,
        ACCESS_TOKEN,
        BUCKET,
        QUOTA,
        APPLICATION,
        SECRET,
        SEALING_KEY,
    )
}
"""Every kind of record in a database, by name."""


@dataclass(frozen=True)
class Migration:
    """The way of a database to this version's schema."""

    database: str
    before: str | None
    """``None`` if it had no tables."""
    after: str


def backup(settings: Settings, target: Path) -> None:
    """Copy the database to ``target`` while a server may use it; see
    ``state.sql.backup.backup``.
    """
    failpoints.arm(os.environ)
    _check_there(settings)
    copies.backup(settings.database_url, target)


def restore(settings: Settings, source: Path) -> Path | None:
    """Put the backup ``source`` in the place of the database; returns where the replaced one is
    kept.

    Raises:
        Conflict: A server uses the data folder, or a newer version has written the backup.
        CloudMlError: See ``state.sql.backup.restore``.
    """
    with _alone(settings):
        return copies.restore(source, settings.database_url, now=system_clock())


def migrate(settings: Settings) -> Migration:
    """Bring the database to this version's schema, as the start of a server does.

    Raises:
        Conflict: A server uses the data folder, or a newer version has written the database.
        Damaged: The database cannot be trusted, or is missing where there must be one.
    """
    with _alone(settings):
        database = open_database(
            settings.database_url, create=not data_folder.has_been_used(settings.data_dir)
        )
        with closing(database):
            return Migration(database.name, database.found, HEAD)


def check(settings: Settings) -> Iterator[str]:
    """Look over the whole database, which a server may use; yields what holds, in sentences.

    Raises:
        Damaged: Something does not hold.
        CloudMlError: See ``state.sql.verify.verify``.
    """
    _check_there(settings)
    return verify(settings.database_url, KINDS)


def _check_there(settings: Settings) -> None:
    """Refuse a data folder without a database where nobody has named another database."""
    if not settings.server.database_url:
        data_folder.check_used(settings.data_dir, settings.data_dir / "state.db")


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Keep servers of this data folder out for the length of a block."""
    failpoints.arm(os.environ)
    lock = data_folder.hold(settings.data_dir, hint="Stop it first; running jobs continue.")
    try:
        yield
    finally:
        os.close(lock)

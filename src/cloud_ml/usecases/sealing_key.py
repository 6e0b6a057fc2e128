"""At the start of a server: the sealing key of its database, made once for all servers of it.
Blocking.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cloud_ml.domain.secrets import SEALING_KEY, SEALING_KEY_NAME, SealingKeySpec
from cloud_ml.domain.tenancy import SYSTEM, StandingStatus
from cloud_ml.errors import AlreadyExists, TryAgain
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock

logger = logging.getLogger(__name__)


class Key(Protocol):
    """A sealing key."""

    @property
    def id(self) -> str:
        """Tells it from others, and nothing about it."""


class Keys(Protocol):
    """The file of the sealing key."""

    path: Path

    def keys(self) -> Sequence[Key]:
        """The keys in it; none if there is no file.

        Raises:
            Unavailable: It cannot be read.
        """

    def make(self) -> Key:
        """Write a new one where there is none.

        Raises:
            OSError: It cannot be written.
        """

    def remove_drafts(self) -> None:
        """Remove keys that a crash has left under another name."""


def ensure_sealing_key(file: Keys, store: StateStore, clock: Clock) -> None:
    """Make the key if the database never had one.

    A server never makes a second key for a database: secrets are sealed with the first. Where the
    key is missing the server starts all the same, and the secrets are unreadable.
    """
    try:
        _ensure(file, store, clock)
    except (TryAgain, OSError) as error:
        logger.warning("secrets cannot be used: %s", error)


def _ensure(file: Keys, store: StateStore, clock: Clock) -> None:
    file.remove_drafts()
    known, record = file.keys(), store.find(SEALING_KEY, SYSTEM, SEALING_KEY_NAME)
    made = not known and record is None
    if made:
        known = [file.make()]
    if record is None:
        try:
            record = store.create(
                SEALING_KEY,
                org=SYSTEM,
                name=SEALING_KEY_NAME,
                owner=SYSTEM,
                spec=SealingKeySpec(known[0].id),
                status=StandingStatus(),
                now=clock(),
            )
        except AlreadyExists:  # another server was faster
            record = store.find(SEALING_KEY, SYSTEM, SEALING_KEY_NAME)
            # One that shares the file has the same key, and may have sealed with it.
            if made and record is not None and record.spec.id != known[0].id:
                file.path.unlink()  # nothing was sealed with it
                known = []
    if record is not None and record.spec.id not in {key.id for key in known}:
        logger.warning(
            "the sealing key of this database is not in %s: secrets that are sealed with it cannot "
            "be read; put the file of its first server there (setting secrets.key_file)",
            file.path,
        )

"""One data folder for all servers of a database: jobs, logs and objects lie in it, and a server with
another one would not find them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from cloud_ml import timers
from cloud_ml.errors import CloudMlError, Conflict
from cloud_ml.state.base import Lease, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload

LEASE = "data folder"
_TTL_S = 15.0
_LOOK_S = 0.2
logger = logging.getLogger(__name__)


class DataFolderClaim:
    """The lease that says which data folder the servers of a database use.

    Servers that share a folder hold it together, each under the same name.

    Args:
        store: Keeps the lease.
        folder: Names the data folder and its machine.
        clock: The time.
    """

    def __init__(self, store: StateStore, folder: str, clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._clock = clock
        self._lease: Lease | None = None
        self.problem = ""
        """What is wrong; empty while the lease is held."""

    def take(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the lease. Where a server with another folder was killed a moment ago, this waits
        until that one's lease is over. Blocking.

        Raises:
            Conflict: A server with another folder runs.
        """
        first = self._store.find_lease(LEASE)
        while (lease := self._try()) is None:
            found = self._store.find_lease(LEASE)
            if found is not None and first is not None and found != first:
                raise _elsewhere(self._folder, found.holder)
            first = first or found
            sleep(_LOOK_S)
        self._lease = lease
        if first is not None and first.holder != self._folder:
            logger.warning(
                "the database was used with another data folder before (%s): what lies there is "
                "missing here", first.holder,
            )  # fmt: skip

    async def keep(self, offload: Offload) -> None:
        """Renew the lease until cancelled."""
        while True:
            await timers.pause(_TTL_S / 3)
            try:
                lease = await offload(self._try)
            except CloudMlError as error:
                logger.warning("the claim of the data folder cannot be renewed: %s", error.message)
                continue
            if lease is None and not self.problem:
                self.problem = (
                    "a server with another data folder has begun to use this database while it did "
                    "not answer here"
                )
                logger.error(self.problem)
            elif lease is not None:
                self._lease, self.problem = lease, ""

    def release(self) -> None:
        """Let another folder be used at once. Not where other servers share this one."""
        if self._lease is not None:
            try:
                self._store.release_lease(self._lease)
            except CloudMlError:
                logger.warning("the claim of the data folder ends by itself", exc_info=True)

    def _try(self) -> Lease | None:
        return self._store.acquire_lease(LEASE, self._folder, ttl_s=_TTL_S, now=self._clock())


def _elsewhere(own: str, other: str) -> Conflict:
    return Conflict(
        f"a server with another data folder uses this database: it has {other}, and this one has "
        f"{own}; jobs and objects of one would be missing at the other",
        field="server.data_dir",
        value=own,
        allowed=f"{other}, with --shared-data on each server",
        hint="Servers that only answer ask and tell, and records, may have folders of their own: "
        "set server.separate_data on each of them.",
    )


async def keep_if_any(claim: DataFolderClaim | None, offload: Offload) -> None:
    """Renew the lease, if the server has one, until cancelled."""
    if claim is None:
        await asyncio.Event().wait()
    else:
        await claim.keep(offload)

"""The lease of the one active controller, and the fence that its commits show."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator

from cloud_ml import timers
from cloud_ml.controller.runtime.leader_lock import LeaderLock
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import Fence, Lease, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload

LEASE = "controller"
_LOCK_LOOK_S = 0.5
"""How soon the death of a leader on this machine is noticed."""
logger = logging.getLogger(__name__)


class Leader:
    """Takes and keeps the lease.

    Args:
        store: Where the lease lives.
        holder: Names this controller; a restarted one of the same name goes on where it was.
        ttl_s: How long a dead controller blocks the next one, in seconds.
        clock: The time.
        offload: Runs the store's calls.
        lock: Where several servers go by the same name: the lock of the one of them that leads.
    """

    def __init__(
        self,
        store: StateStore,
        holder: str,
        ttl_s: float,
        clock: Clock,
        offload: Offload,
        *,
        lock: LeaderLock | None = None,
    ) -> None:
        self._store = store
        self._name = self._holder = holder
        # A process id may be used again.
        self._own_name = f"{holder}#{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = lock
        self._ttl_s = ttl_s
        self._clock = clock
        self._offload = offload
        self._lost = asyncio.Event()

    @contextlib.asynccontextmanager
    async def term(self) -> AsyncIterator[tuple[Fence, asyncio.Event]]:
        """Wait for the lease, keep it while the block runs, give it back.

        Yields the fence, and an event that is set when the lease is lost: the block must end then.
        """
        lease = await self._acquire()
        self._lost = asyncio.Event()
        keeper = asyncio.create_task(self._keep(), name="lease-keeper")
        try:
            yield Fence(lease.name, lease.epoch), self._lost
        finally:
            keeper.cancel()
            try:
                if not self._lost.is_set():
                    with contextlib.suppress(CloudMlError):
                        await self._offload(self._store.release_lease, lease)
            finally:
                if self._lock is not None:
                    self._lock.release()

    def lose(self) -> None:
        """Somebody's commit was refused by the fence: the term is over."""
        self._lost.set()

    async def _acquire(self) -> Lease:
        while True:
            self._choose_name()
            if (lease := await self._try()) is not None:
                return lease
            await self._wait_for_turn()

    def _choose_name(self) -> None:
        """Go by the common name if no process of this machine leads: the lease of a dead leader is
        extended then. While one leads, the lease is to be had under another name once it has
        expired, as that of a leader that hangs.

        The name has the number of the lock's file: where the file was removed under a leader, the
        lock of the next one says nothing about it.
        """
        if self._lock is not None:
            is_free = self._lock.take()
            self._holder = f"{self._name}/{self._lock.file_number}" if is_free else self._own_name

    async def _wait_for_turn(self) -> None:
        """Wait until the lease may be free, or the leader of this machine is dead."""
        if self._lock is None:
            await asyncio.sleep(self._ttl_s / 3)
            return
        self._lock.release()
        until = asyncio.get_running_loop().time() + self._ttl_s / 3
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(min(_LOCK_LOOK_S, self._ttl_s / 3))
            if self._lock.take():
                return

    async def _keep(self) -> None:
        """Extend the lease three times as often as needed; whoever cannot for a whole term has
        lost it.
        """
        loop = asyncio.get_running_loop()
        good_until = loop.time() + self._ttl_s
        while True:
            await timers.pause(self._ttl_s / 3)
            if self._lock is not None:
                # After a leader that hung, when it has given the lock back: while nobody has it,
                # each of the others asks the store twice a second.
                self._lock.take()
            renewed_at = loop.time()
            if await self._try_until(good_until) is not None:
                # Count from the request: part of the lease may have passed when the answer
                # arrives.
                good_until = renewed_at + self._ttl_s
            # The next try would come too late, so the term ends now.
            elif self._lost.is_set() or renewed_at >= good_until - self._ttl_s / 3:
                logger.warning("the controller's lease is lost")
                self._lost.set()
                return

    async def _try_until(self, deadline: float) -> Lease | None:
        """The lease, if the store answers in time. A network that drops what is sent keeps the
        caller waiting for longer than a term, while another server leads.
        """
        try:
            async with asyncio.timeout_at(deadline):
                return await self._try()
        except TimeoutError:
            self._lost.set()
            return None

    async def _try(self) -> Lease | None:
        try:
            return await self._offload(
                self._store.acquire_lease, LEASE, self._holder, ttl_s=self._ttl_s, now=self._clock()
            )
        except CloudMlError:
            logger.warning("the store does not answer about the controller's lease", exc_info=True)
            return None

"""The feed of changes of the fake engine: whose gangs changed, and who waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

_notifications: set[asyncio.Task[None]] = set()
"""Tasks that wake those who wait; a loop alone does not keep them."""


class ChangeFeed:
    """The jobs whose gangs changed, each once however often it did."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._jobs: set[str] = set()

    def add(self, job_uid: str) -> None:
        """Tell that a gang of a job changed, or its logs."""
        self._jobs.add(job_uid)
        try:
            task = asyncio.get_running_loop().create_task(self._notify())
        except RuntimeError:  # called outside a loop: nobody waits
            return
        _notifications.add(task)
        task.add_done_callback(_notifications.discard)

    async def jobs(self, living: Callable[[], Iterable[str]]) -> AsyncIterator[str]:
        """The jobs that change, without an end; first those that have a gang that lives."""
        self._jobs.update(living())
        while True:
            while self._jobs:
                yield self._jobs.pop()
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._jobs))

    async def wait(self) -> None:
        """Return after the next change of any job."""
        async with self._changed:
            await self._changed.wait()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

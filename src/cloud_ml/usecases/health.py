"""Whether the server is fit to take work."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from cloud_ml.engines.base import Engine
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload

logger = logging.getLogger(__name__)

_KEPT = timedelta(seconds=1)
_ENGINE_TIMEOUT_S = 5.0


class Health:
    """Tries the store and the engine. The answer is kept for a second: anybody may ask, and it
    costs a write.

    Args:
        store: Is written.
        engine: Is asked.
        offload: Runs the call of the store.
        clock: The time.
        data_folder: Says what is wrong with the data folder; nothing where it says nothing.
    """

    def __init__(
        self,
        store: StateStore,
        engine: Engine,
        offload: Offload,
        clock: Clock,
        *,
        data_folder: Callable[[], str] = str,
    ) -> None:
        self._store = store
        self._engine = engine
        self._offload = offload
        self._clock = clock
        self._data_folder = data_folder
        self._looking = asyncio.Lock()
        self._looked_at: datetime | None = None
        self._problems: dict[str, str] = {}

    async def problems(self) -> dict[str, str]:
        """Part → what is wrong with it; empty when all is well."""
        async with self._looking:
            now = self._clock()
            if self._looked_at is None or not timedelta(0) <= now - self._looked_at < _KEPT:
                self._problems = await self._look(now)
                self._looked_at = now
            return self._problems

    async def _look(self, now: datetime) -> dict[str, str]:
        problems: dict[str, str] = {}
        try:
            await self._offload(
                self._store.remember, Once(f"health/{uuid.uuid4().hex}", now + _KEPT)
            )
        except CloudMlError as error:
            problems["store"] = error.message
        try:
            async with asyncio.timeout(_ENGINE_TIMEOUT_S):
                await self._engine.capacity()
        except CloudMlError as error:
            problems["engine"] = error.message
        except TimeoutError:
            problems["engine"] = f"no answer within {_ENGINE_TIMEOUT_S:g} s"
        if problem := self._data_folder():
            problems["data_folder"] = problem
        if problems:
            logger.warning("not ready: %s", problems)
        return problems

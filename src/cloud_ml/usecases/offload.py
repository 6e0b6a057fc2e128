"""Blocking calls (the store, the object store) from an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Runs blocking calls on a few threads of its own.

    Few on purpose: the store has one writer at a time anyway, and a bounded pool makes a flood wait here,
    not inside the database.
    """

    def __init__(self, threads: int = 8) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="blocking")

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(*args, **kwargs)``, called on a thread.

        A caller that is cancelled stops waiting; the call itself runs to its end.
        """
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Let calls under way end and the threads go."""
        self._executor.shutdown(wait=True)

"""Seams that fail or hang on request, for one record: every call that speaks of it does, all
others pass.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass
class Faults:
    """Which call is to fail with what, for which record. ``hits`` counts the calls that did.

    With ``hangs`` such a call does not return before ``go_on``.
    """

    armed: tuple[str, str] = ("", "")
    error: Exception | None = None
    victims: set[str] = field(default_factory=set)
    hits: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    hangs: bool = False
    _released: threading.Event = field(default_factory=threading.Event)

    def wrap(self, seam: str, target: Any) -> Any:
        """``target``, whose methods fail when they are armed."""
        return cast("Any", _Faulty(seam, target, self))

    def go_on(self) -> None:
        """Calls that hang return, and no other will hang."""
        self.hangs = False
        self._released.set()

    async def wait(self, seam: str, method: str, arguments: object) -> None:
        """Hang, if this call is to, without a thread."""
        if self._is_to_hang(seam, method, arguments):
            while not self._released.is_set():
                await asyncio.sleep(0.005)

    def hang(self, seam: str, method: str, arguments: object) -> None:
        """Hang, if this call is to, on this thread."""
        if self._is_to_hang(seam, method, arguments):
            self._released.wait(60)

    def _is_to_hang(self, seam: str, method: str, arguments: object) -> bool:
        text = repr(arguments)
        hangs = (
            self.hangs
            and self.armed == (seam, method)
            and any(victim in text for victim in self.victims)
        )
        self.hits += hangs
        return hangs

    def check(self, seam: str, method: str, arguments: object) -> None:
        """Fail, if this call is to."""
        self.calls[seam, method] += 1
        if self.error is not None and self.armed == (seam, method):
            text = repr(arguments)
            if any(victim in text for victim in self.victims):
                self.hits += 1
                raise self.error.with_traceback(
                    None
                )  # the same error again: its traceback would grow each time


class _Faulty:
    def __init__(self, seam: str, target: Any, faults: Faults) -> None:
        self._seam = seam
        self._target = target
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found
        if inspect.iscoroutinefunction(found):

            async def waiting(*args: Any, **kwargs: Any) -> Any:
                self._faults.check(self._seam, name, (args, kwargs))
                await self._faults.wait(self._seam, name, (args, kwargs))
                return await found(*args, **kwargs)

            return waiting

        def calling(*args: Any, **kwargs: Any) -> Any:
            self._faults.check(self._seam, name, (args, kwargs))
            self._faults.hang(self._seam, name, (args, kwargs))
            return found(*args, **kwargs)

        return calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._faults.check(self._seam, "call", (args, kwargs))
        return self._target(*args, **kwargs)

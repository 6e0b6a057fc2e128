"""Seams that fail on request, for one record: every call that speaks of it raises, all others pass."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass
class Faults:
    """Which call is to fail with what, for which record. ``hits`` counts the calls that did."""

    armed: tuple[str, str] = ("", "")
    error: Exception | None = None
    victims: set[str] = field(default_factory=set)
    hits: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def wrap(self, seam: str, target: Any) -> Any:
        """``target``, whose methods fail when they are armed."""
        return cast("Any", _Faulty(seam, target, self))

    def check(self, seam: str, method: str, arguments: object) -> None:
        """Fail, if this call is to."""
        self.calls[seam, method] += 1
        if self.error is not None and self.armed == (seam, method):
            said = repr(arguments)
            if any(victim in said for victim in self.victims):
                self.hits += 1
                raise self.error


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
                return await found(*args, **kwargs)

            return waiting

        def calling(*args: Any, **kwargs: Any) -> Any:
            self._faults.check(self._seam, name, (args, kwargs))
            return found(*args, **kwargs)

        return calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._faults.check(self._seam, "call", (args, kwargs))
        return self._target(*args, **kwargs)

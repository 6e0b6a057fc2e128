"""The spawner's side: which interpreters should wait, which gang gets one, and which are let go."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cloud_ml.engines.gang import Gang
from cloud_ml.engines.local.config import WarmPoolLimits
from cloud_ml.engines.local.warm_pool.interpreter import FOLDER
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec, hint
from cloud_ml.environments.removing import remove
from cloud_ml.models import codec

_REMEMBERED = 256


class Waiting(Protocol):
    """A supervisor with an interpreter."""

    interpreter_key: str
    ready: bool


_Waiting = TypeVar("_Waiting", bound=Waiting)


class InterpreterPool:
    """Remembers what gangs could have started from, and decides; starts and ends nothing itself.

    An order is wanted from when a gang could use it until none has come for as long as one may
    wait. Several gangs of a kind at a time find one interpreter; the others start the ordinary way.
    """

    def __init__(self, limits: WarmPoolLimits) -> None:
        self._limits = limits
        self._hints: OrderedDict[str, str] = OrderedDict()
        self._orders: OrderedDict[str, InterpreterSpec] = OrderedDict()
        self._requested_at: dict[str, float] = {}
        self._failed: dict[str, float] = {}

    def expect(self, message: Mapping[str, Any]) -> None:
        """Take note of what a gang could start from, or that its kind cannot."""
        kind, document = str(message["hint"]), message["order"]
        self._hints.pop(kind, None)
        if document is None:
            return
        order = codec.decode(InterpreterSpec, document)
        if time.monotonic() - self._failed.get(order.key, float("-inf")) < self._limits.idle_s:
            return
        self._hints[kind] = order.key
        self._orders[order.key] = order
        self._orders.move_to_end(order.key)
        self._requested_at[order.key] = time.monotonic()
        while len(self._hints) > _REMEMBERED:
            self._hints.popitem(last=False)
        while len(self._orders) > max(1, self._limits.most):
            self._forget(next(iter(self._orders)))

    def choose(self, gang: Gang, waiting: Sequence[_Waiting]) -> _Waiting | None:
        """The interpreter for that gang, as far as one can tell before its environment is known."""
        if not waiting or gang.has_tasks:
            return None
        key = self._hints.get(hint(gang))
        return next((one for one in waiting if one.ready and one.interpreter_key == key), None)

    def missing_interpreter(self, kept: Sequence[str]) -> InterpreterSpec | None:
        """What should wait and does not: what was asked for last comes first."""
        return next(
            (order for key, order in reversed(self._orders.items()) if key not in kept), None
        )

    def oldest(self, waiting: Sequence[_Waiting]) -> _Waiting:
        """The one that is likely to be missed least."""
        return min(waiting, key=lambda one: self._requested_at.get(one.interpreter_key, 0.0))

    def outdated(self, waiting: Sequence[_Waiting]) -> list[_Waiting]:
        """Those for which no gang has come for too long."""
        now = time.monotonic()
        for key in [
            key for key, at in self._requested_at.items() if now - at >= self._limits.idle_s
        ]:
            self._forget(key)
        return [one for one in waiting if one.interpreter_key not in self._orders]

    def wait_left(self, kept: Sequence[str]) -> float:
        """Seconds until there is something to look at."""
        times = [at for key, at in self._requested_at.items() if key in kept]
        return (
            max(0.0, min(times) + self._limits.idle_s - time.monotonic()) if times else float("inf")
        )

    def failed(self, key: str) -> None:
        """One could not import, or did not last: no other is tried for as long as one may wait."""
        self._failed = {
            key: at
            for key, at in self._failed.items()
            if time.monotonic() - at < self._limits.idle_s
        }
        self._failed[key] = time.monotonic()
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._orders.pop(key, None)
        self._requested_at.pop(key, None)


def clear(root: Path) -> None:
    """Remove the folders of those whose supervisor is gone."""
    folder = root / FOLDER
    for one in folder.iterdir() if folder.is_dir() else ():
        if not Path("/proc", one.name).exists():
            remove(one)

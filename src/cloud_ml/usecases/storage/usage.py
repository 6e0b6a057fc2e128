"""How much buckets hold: counted now and then, kept for a while, so that asking is cheap."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cloud_ml.errors import NotFound
from cloud_ml.models.storage.objects import BucketUsage
from cloud_ml.objects.base import ObjectStore
from cloud_ml.settings import StorageSettings
from cloud_ml.usecases.clock import Clock

_REMEMBERED = 10_000


@dataclass
class _Entry:
    counting: threading.Lock = field(default_factory=threading.Lock)
    known: BucketUsage | None = None
    came_in: list[int] = field(default_factory=list)
    """Sizes of what came in while it is counted."""
    fresh_until: float = 0.0


class UsageCounter:
    """Counts what is stored. Safe to use from several threads.

    A figure is at most ``usage_staleness_s`` old; what this server takes in is added to it at once,
    so whoever limits storage by it lets nothing slip through meanwhile. What jobs write, and what
    is removed, shows with the next count. One caller counts, others wait for its figure.
    """

    def __init__(
        self,
        objects: ObjectStore,
        clock: Clock,
        settings: StorageSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._settings = settings
        self._monotonic = monotonic
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def bucket(self, name: str) -> BucketUsage:
        """What the bucket holds; a bucket that has just gone holds nothing."""
        with self._lock:
            if len(self._entries) >= _REMEMBERED:
                self._entries.clear()
            entry = self._entries.setdefault(name, _Entry())
        with entry.counting:
            if entry.known is None or self._monotonic() >= entry.fresh_until:
                with self._lock:
                    entry.came_in.clear()
                found = self.below(name, "")
                # Bytes that arrived meanwhile may be counted already. Counting them twice is
                # better than missing them.
                with self._lock:
                    entry.known = _with(found, entry.came_in)
                entry.fresh_until = self._monotonic() + self._settings.usage_staleness_s
            return entry.known

    def below(self, bucket: str, prefix: str) -> BucketUsage:
        """What the bucket holds under keys that start with ``prefix``, counted now."""
        counted_at = self._clock()
        deadline = self._monotonic() + self._settings.usage_time_limit_s
        try:
            found = self._objects.amount(bucket, prefix, stop=lambda: self._monotonic() > deadline)
        except NotFound:
            return BucketUsage(
                bucket=bucket,
                prefix=prefix,
                objects=0,
                bytes=0,
                complete=True,
                counted_at=counted_at,
            )
        return BucketUsage(
            bucket=bucket,
            prefix=prefix,
            objects=found.objects,
            bytes=found.size,
            complete=found.complete,
            counted_at=counted_at,
        )

    def add(self, bucket: str, size: int) -> None:
        """An object of ``size`` bytes came in. One that it replaced goes on to count until the next
        count.

        Never waits for a count.
        """
        with self._lock:
            if (entry := self._entries.get(bucket)) is None:
                return
            if entry.counting.locked():
                entry.came_in.append(size)
            if (known := entry.known) is not None:
                entry.known = _with(known, [size])


def _with(usage: BucketUsage, sizes: Sequence[int]) -> BucketUsage:
    return replace(usage, objects=usage.objects + len(sizes), bytes=usage.bytes + sum(sizes))

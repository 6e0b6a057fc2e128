"""How many objects and folders an organisation may have in its buckets: a disk holds only so
many files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloud_ml.errors import NotFound, QuotaExceeded
from cloud_ml.objects.base import ObjectStore

_INLINE_S = 0.02
"""A count that takes longer goes on beside the uploads."""
_LONGEST_S = 300.0
_GOOD_FOR_S = 60.0
_SHARE_OF_TIME = 50
_RECOUNT_S = 5.0
logger = logging.getLogger(__name__)


@dataclass
class _Estimate:
    names: int = 0
    added: int = 0
    counted_at: float = float("-inf")
    good_for_s: float = 0.0


class ObjectLimit:
    """Refuses objects beyond a bound. Blocking; thread-safe.

    Names are counted once a minute, less often where that takes long; in between, those that come
    through this server are added. So the bound holds about, and no upload waits for a long count.

    Args:
        objects: Where they are.
        buckets_of: The buckets of an organisation.
        most: How many an organisation may have; 0 for any number.
        stop: Whether the server goes down.
    """

    def __init__(
        self,
        objects: ObjectStore,
        buckets_of: Callable[[str], Sequence[str]],
        most: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._objects = objects
        self._buckets_of = buckets_of
        self._most = most
        self._stop = stop
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._estimates: dict[str, _Estimate] = {}

    def check(self, org: str, more: int = 1) -> None:
        """Take ``more`` objects into account, or refuse them.

        Raises:
            QuotaExceeded: There are as many as there may be.
        """
        if not self._most:
            return
        with self._lock:
            estimate = self._estimates.setdefault(org, _Estimate())
        age_s = time.monotonic() - estimate.counted_at
        full = estimate.names + estimate.added + more > self._most
        if age_s > estimate.good_for_s or (full and age_s > _RECOUNT_S):
            self._recount(org, estimate)
        with self._lock:
            if estimate.names + estimate.added + more <= self._most:
                estimate.added += more
                return
        raise QuotaExceeded(
            f"{org} has {estimate.names} objects and folders in its buckets, parts of unfinished "
            "uploads among them; more are refused",
            field="key",
            allowed=f"at most {self._most} objects and folders (the operator's setting "
            "storage.objects_per_org)",
            hint="remove objects that are not needed any more, or pack small files together",
        )

    def _recount(self, org: str, estimate: _Estimate) -> None:
        """Count for a moment; where that is not enough, go on in the background. One count runs
        at a time.
        """
        if not self._counting.acquire(blocking=False):
            return
        beside = False
        try:
            if not self._count(org, estimate, _INLINE_S):
                threading.Thread(
                    target=self._count_beside, args=(org, estimate), name="counting", daemon=True
                ).start()
                beside = True
        finally:
            if not beside:
                self._counting.release()

    def _count_beside(self, org: str, estimate: _Estimate) -> None:
        try:
            if not self._count(org, estimate, _LONGEST_S):
                # what was counted is a lower bound, and counting again at once would be no better
                with self._lock:
                    estimate.counted_at, estimate.good_for_s = (
                        time.monotonic(),
                        _SHARE_OF_TIME * _LONGEST_S,
                    )
        except Exception:
            logger.warning(
                "the objects of an organisation cannot be counted now",
                exc_info=True,
                extra={"org": org},
            )
        finally:
            self._counting.release()

    def _count(self, org: str, estimate: _Estimate, limit_s: float) -> bool:
        """Count again; false, and no change but to more, if the time was not enough."""
        began = time.monotonic()
        # Objects added while the count runs may be missing from it, so they stay in ``added``.
        added = estimate.added
        late = False

        def stop() -> bool:
            nonlocal late
            late = late or self._stop() or time.monotonic() - began > limit_s
            return late

        names = 0
        for bucket in self._buckets_of(org):
            try:
                names += self._objects.names(bucket, stop=stop)
            except NotFound:  # it went at this moment
                continue
        took_s = time.monotonic() - began
        with self._lock:
            if late:
                estimate.names = max(estimate.names, names)
                return False
            estimate.names, estimate.added = names, max(0, estimate.added - added)
            estimate.counted_at = time.monotonic()
            estimate.good_for_s = max(_GOOD_FOR_S, _SHARE_OF_TIME * took_s)
        return True

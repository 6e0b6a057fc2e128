"""Passes that failed: how long their record waits for the next one, and the event that says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloud_ml.controller.runtime.passes import StepTimeout
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.errors import CloudMlError, TryAgain
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.offload import Offload

_REMEMBERED = 4096
_LONGEST = 1000
"""Characters of an event."""
logger = logging.getLogger(__name__)


@dataclass
class _Failures:
    count: int = 0
    last_sentence: str = ""
    last_event_at: datetime | None = None


class FailedPasses:
    """Counts failures by record. Belongs to one event loop.

    Args:
        store: Keeps the events.
        settings: How long failures wait, and how often the same one makes an event.
        clock: The time.
        offload: Runs the store's calls.
    """

    def __init__(
        self,
        store: StateStore,
        settings: ControllerSettings,
        clock: Callable[[], datetime],
        offload: Offload,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._offload = offload
        self._failures: dict[str, _Failures] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def note(self, uid: str, error: Exception) -> float:
        """A pass of the record has failed; returns how many seconds to wait for the next one."""
        failures = self._failures.pop(uid, None) or _Failures()
        self._failures[uid] = failures
        if len(self._failures) > _REMEMBERED:
            del self._failures[next(iter(self._failures))]
        failures.count += 1
        delay_s = self._delay_s(failures.count)
        expected = isinstance(error, TryAgain) and not isinstance(error, StepTimeout)
        logger.warning(
            "reconcile failed", exc_info=error if not expected else None,
            extra={"uid": uid, "again_in_s": delay_s, "error": str(error)},
        )  # fmt: skip
        if not expected or failures.count > 1:  # what is away for a moment is no news
            self._begin_to_tell(uid, failures, describe(error))
        return delay_s

    def clear(self, uid: str) -> None:
        """A pass has succeeded. The last event is remembered: a failure that comes and goes makes
        one once in a while.
        """
        if (failures := self._failures.get(uid)) is not None:
            failures.count = 0

    def forget(self, uid: str) -> None:
        """The record is gone."""
        self._failures.pop(uid, None)

    def close(self) -> None:
        """Write no more events."""
        for task in list(self._tasks.values()):
            task.cancel()

    def _begin_to_tell(self, uid: str, failures: _Failures, sentence: str) -> None:
        """Write an event; a store that does not answer must not hold up a worker, nor be asked
        twice at once.
        """
        if uid not in self._tasks:
            task = self._tasks[uid] = asyncio.create_task(self._tell(uid, failures, sentence))
            task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    async def _tell(self, uid: str, failures: _Failures, sentence: str) -> None:
        now, period = self._clock(), timedelta(seconds=self._settings.failure_event_s)
        if (
            failures.last_sentence == sentence
            and failures.last_event_at is not None
            and now - failures.last_event_at < period
        ):
            return
        event = Event(now, Reason.RECONCILE_FAILED, sentence, EventType.WARNING)
        try:
            await self._offload(self._store.add_event, uid, event)
        except Exception:
            logger.warning(
                "the event of a failed reconcile cannot be written",
                exc_info=True,
                extra={"uid": uid},
            )
        else:
            failures.last_sentence, failures.last_event_at = sentence, now

    def _delay_s(self, failures: int) -> float:
        settings = self._settings
        return min(
            # Bounded: 2.0 to a power above 1023 is an OverflowError.
            settings.backoff_longest_s,
            settings.backoff_first_s * 2.0 ** min(failures - 1, 20),
        )


def describe(error: Exception) -> str:
    """The failure for the owner of the record: no path of the server's, and no text that was not
    meant for people.
    """
    if isinstance(error, CloudMlError):
        why = error.user_message
    elif isinstance(error, OSError) and error.strerror:
        why = f"the system says: {error.strerror}"
    else:
        why = f"an internal error ({type(error).__name__}); see the server's log"
    return f"the next step failed and is tried again: {why}"[:_LONGEST]

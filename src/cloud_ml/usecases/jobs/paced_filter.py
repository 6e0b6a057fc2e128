"""Compares the files of a job with patterns, within a bound of processor time and with pauses for
others.

A tenant chooses the patterns and the names. A comparison holds the interpreter, which all callers
of the server share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cloud_ml.domain.workloads.outputs import OutputFilter

_BURST_S = 0.002
_PAUSE = 9.0
"""The pause after a burst, as a multiple of its length."""
_UNPACED_S = 0.1
"""Processor time before the first pause; most jobs take less."""


class PacedFilter:
    """An output filter whose work is bounded.

    Args:
        patterns: What the user asked for; see ``OutputFilter``.
        ignored: The lines of the ignore file.
        limit_s: Processor time that it may take in all; 0 means no limit.
        clock: The processor time of this thread.
        sleep: Pauses so many seconds.
    """

    def __init__(
        self,
        patterns: Sequence[str] | None,
        ignored: Sequence[str] = (),
        *,
        limit_s: float = 0.0,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rules = OutputFilter(patterns, ignored, checkpoint=self._checkpoint)
        self._limit_s = limit_s
        self._clock = clock
        self._sleep = sleep
        self._began_s = 0.0
        self._used_s = 0.0
        self._burst_s = 0.0

    def keeps(self, path: bytes) -> bool | None:
        """Whether the file is an output; ``None`` if the limit is reached."""
        return None if self._is_used_up else self._match_timed(self._rules.keeps, path)

    def enters(self, folder: bytes) -> bool:
        """Whether a file below the folder may be an output."""
        return self._is_used_up or self._match_timed(self._rules.enters, folder)

    def may_keep_below(self, folder: bytes) -> bool:
        """Whether files in the folder may be outputs."""
        return self._is_used_up or self._match_timed(self._rules.may_keep_below, folder)

    @property
    def _is_used_up(self) -> bool:
        return 0 < self._limit_s <= self._used_s

    def _match_timed(self, compare: Callable[[str], bool], path: bytes) -> bool:
        self._began_s = self._clock()
        found = compare(path.decode("utf-8", "surrogateescape"))
        self._checkpoint()
        return found

    def _checkpoint(self) -> None:
        """Count the time since the last one, and pause if a burst is over."""
        now_s = self._clock()
        took_s, self._began_s = now_s - self._began_s, now_s
        self._used_s += took_s
        if self._used_s < _UNPACED_S:
            return
        self._burst_s += took_s
        if self._burst_s > _BURST_S:
            self._sleep(self._burst_s * _PAUSE)
            self._burst_s = 0.0

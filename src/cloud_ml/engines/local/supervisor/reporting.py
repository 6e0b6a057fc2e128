"""Publishes how far a gang has come: at once, soon, or together with what comes next."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.engines.local.ledger import Ledger

_FULL_DISK_PAUSE_S = 1.0
_NEWS_S = 0.3
"""A stage is told with the next one unless that takes longer: most follow each other within
milliseconds.
"""


class Reporter:
    """Keeps the report of a gang and writes it to the ledger.

    While the gang is ``staging``, nobody looks at clocks: a signal tells what is due. The caller
    sets ``on_alarm`` as the handler of SIGALRM. Afterwards the caller calls ``publish_due`` at
    ``due_at`` (monotonic time) or later.
    """

    def __init__(self, ledger: Ledger, report: ObservedGang) -> None:
        self._ledger = ledger
        self.report = report
        self.staging = True
        self.due_at: float | None = None

    def update(self, **changes: object) -> None:
        """Change the report, to be published with what comes next."""
        self.report = replace(self.report, **changes)  # type: ignore[arg-type]

    def reach(self, stage: str) -> None:
        """Note when a stage was reached, to be published with what comes next, or soon if that
        takes long.
        """
        if self.staging:
            signal.setitimer(signal.ITIMER_REAL, _NEWS_S)
        else:
            self.publish_within(_NEWS_S)
        self.update(stages={**self.report.stages, stage: datetime.now(UTC)})

    def publish_within(self, seconds: float) -> None:
        """Publish the report after so many seconds at most."""
        moment = time.monotonic() + seconds
        self.due_at = moment if self.due_at is None else min(moment, self.due_at)

    def publish_due(self, now: float) -> None:
        """Publish the report if it is due."""
        if self.due_at is not None and now >= self.due_at:
            self.publish()

    def publish(self, **changes: object) -> None:
        """Publish the report with these changes. On a full disk news may be missed, but never
        the end.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)  # it would come in the middle of the writing
        self.due_at = None
        self.update(**changes)
        while True:
            try:
                self._ledger.report(self.report)
            except OSError:
                if not self.report.state.over:
                    return
                # Without its end on record, the attempt would count as lost once this process is
                # gone.
                time.sleep(_FULL_DISK_PAUSE_S)
            else:
                return

    def on_alarm(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGALRM."""
        del number, frame
        if self.staging:
            self.publish()

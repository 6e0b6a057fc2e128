"""What a supervisor that was killed cannot do any more for its gang, and what a predecessor of
the spawner left.
"""

from __future__ import annotations

import contextlib
import time

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.cleanup import stale_processes
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.ledger import Ledger, is_alive

# The spawner serves all gangs, so it waits at most a tenth of a second. The engine checks again
# later.
_LOOKS, _LOOK_S = 20, 0.005


def look_after(ledger: Ledger, config: LocalConfig, key: GangKey, supervisor: int) -> None:
    """End what is left of the gang of that supervisor, call it over, and tidy up."""
    # The process that was killed may have left a draft. Those of processes that live are kept.
    ledger.clear_drafts()
    gate = ledger.gate(key)
    if gate is None:  # killed before it had the gang
        with contextlib.suppress(OSError):  # a full disk; the engine looks again in any case
            ledger.tell_unclaimed(key)
        return
    if gate.pid != supervisor:
        return  # one of several that lost the race for the claim
    report = ledger.read_report(key)
    if report is None or not report.state.over:
        if not _has_ended(ledger, config, key):
            return  # the engine looks again: nothing may be called over that has a process left
        observed = ledger.observe(key)
        if observed is not None and observed.state.over:
            ledger.report(observed)
    stale_processes.clear(ledger, key)


class FailedStarts:
    """Gangs whose supervisors end with an error before they have them. After a few tries such a
    gang is over: it would be tried for ever, and nobody would be told.

    Args:
        ledger: Where the end is told.
        most: So many supervisors may fail.
    """

    def __init__(self, ledger: Ledger, most: int = 3) -> None:
        self._ledger = ledger
        self._most = most
        self._failed: dict[GangKey, int] = {}

    def note(self, key: GangKey, *, failed: bool) -> None:
        """A supervisor of this gang has ended."""
        if not failed or self._ledger.gate(key) is not None:
            self._failed.pop(key, None)
            return
        self._failed[key] = self._failed.get(key, 0) + 1
        if self._failed[key] >= self._most:
            with contextlib.suppress(OSError):  # a full disk: another try may find room
                self._give_up(key)

    def _give_up(self, key: GangKey) -> None:
        # A report counts only for a claimed gang, so the spawner claims the gang before it
        # reports the end.
        if self._ledger.claim(key):
            message = (
                f"the attempt cannot be started: {self._most} supervisors ended with an error "
                "before it began. The server's operator finds the error in the spawner's log"
            )
            self._ledger.report(
                ObservedGang(
                    key.job_uid,
                    key.attempt,
                    GangState.EXITED,
                    reason=Reason.START_FAILED,
                    message=message,
                )
            )
        del self._failed[key]


class InheritedGangs:
    """Gangs of a predecessor of the spawner. Their supervisors tidy up after them, but for their
    control groups.

    Of gangs that are over nothing stays that the predecessor would have removed.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gangs: dict[GangKey, list[str]] = {}
        ledger.clear_drafts()
        ledger.projects.free_unused()
        for uid in ledger.known_jobs():
            for attempt in ledger.attempts(uid):
                key = GangKey(uid, attempt)
                if not self._is_done(key):
                    self._gangs[key] = stale_processes.group_names(ledger, key)

    @property
    def groups(self) -> list[str]:
        """The control groups that are in use."""
        return [name for names in self._gangs.values() for name in names]

    def done(self) -> list[str]:
        """The control groups of gangs that are over since this was last asked."""
        return [
            name for key in list(self._gangs) if self._is_done(key) for name in self._gangs.pop(key)
        ]

    def _is_done(self, key: GangKey) -> bool:
        gate, observed = self._ledger.gate(key), self._ledger.observe(key)
        if gate is None or observed is None:
            return True
        # A supervisor that has reported the end may still be cleaning up; until it exits, its
        # control groups are in use.
        if not observed.state.over or (gate.claimed and is_alive(gate)):
            return False
        report = self._ledger.read_report(key)
        reported = report is not None and report.state.over
        # Whether the last process of one is gone that is not told to be over, the engine finds out.
        if reported or observed.state is not GangState.LOST:
            stale_processes.clear(self._ledger, key)
        return True


def _has_ended(ledger: Ledger, config: LocalConfig, key: GangKey) -> bool:
    for _ in range(_LOOKS):
        if stale_processes.end(ledger, config, key):
            return True
        time.sleep(_LOOK_S)
    return False

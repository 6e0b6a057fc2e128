"""The end of a gang, and what it means for tasks that end with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.processes.launch import Exit
from cloud_ml.engines.local.processes.limits import Verdict

STOPPED_WELL = "stopped, and exited with code 0"
"""What is said of a process that ends well when its gang is cancelled."""
_OWN_ENDS = (Reason.COMPLETED, Reason.HUNG)
"""Ends that tasks have by themselves, also while their gang stops."""
_BY_SIGNALS = (Reason.NON_ZERO_EXIT, Reason.SIGNALED, Reason.START_FAILED)
"""What may follow from a signal. One that comes while the sandbox is made keeps it from starting."""
_SHELL_BASE = 128


def ends_by(end: Exit, signals: Collection[int]) -> bool:
    """Whether an end is that of one of these signals, also as shells and handlers say it by code."""
    if end.signal is not None:
        return end.signal in signals
    return end.code is not None and end.code - _SHELL_BASE in signals


@dataclass
class GangEnd:
    """How a gang has ended, if it has, and by which of its tasks, if it was one.

    Args:
        several: The gang is of several tasks.
        is_array: They know no other.
    """

    several: bool
    is_array: bool
    verdict: Verdict | None = None
    ended_by: str = ""

    def stopped(self, task: str, verdict: Verdict, *, by_server: bool) -> Verdict | None:
        """What is said of a task that has ended because the gang had; ``None`` if it did not.

        A task of an array may end well when it is asked to, and is not done then. A single one that
        ends ``by_server``, by a signal that the server sent, has not failed.
        """
        if self.verdict is None or task == self.ended_by:
            return None
        if self.is_array or (self.several and verdict.reason not in _OWN_ENDS):
            return self.of_a_stopped_task()
        if by_server and verdict.reason in _BY_SIGNALS:
            return self.of_a_stopped_task()
        if verdict.reason is Reason.COMPLETED and self.verdict.reason is not Reason.COMPLETED:
            return replace(verdict, message=STOPPED_WELL)
        return None

    def of_a_stopped_task(self) -> Verdict:
        """What is said of a task that was stopped because the gang is over."""
        if self.verdict is not None and self.verdict.reason is Reason.COMPLETED:
            return Verdict(Reason.COMPLETED, "stopped, because the job had completed")
        why = f"because {self.ended_by} had ended" if self.ended_by else "with the whole job"
        return Verdict(Reason.CANCELLED, f"stopped {why}")

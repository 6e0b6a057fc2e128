"""Whether a job that ran again gave the same, as the modern surface answers it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cloud_ml.models.tracking.metrics import MetricValue

IDENTICAL, WITHIN, DIFFERS, UNKNOWN = "identical", "within", "differs", "unknown"


@dataclass(frozen=True, kw_only=True)
class NewReproduction:
    """A request to run a job again from its record, as the job ``job_name``."""

    job_name: str


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The verdict: ``identical``, ``within`` the tolerance, ``differs``, or ``unknown`` where
    neither run left anything to compare.

    ``largest_difference`` of all metrics is ``where``: the metric and its step. ``because`` are the
    reasons for a verdict that is not ``identical``. ``outputs`` are the files that differ, at most
    ten. ``ask_again`` says that no reason is known: run the job once more and ask with that, which
    tells whether it differs from itself. ``said`` is the verdict in a sentence.
    """

    job: str
    again: str
    verdict: str
    said: str
    largest_difference: MetricValue | None = None
    where: str = ""
    because: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    series: int = 0
    files: int = 0
    ask_again: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def reproduced(self) -> bool:
        """Whether it gave the same, or nearly."""
        return self.verdict in (IDENTICAL, WITHIN)


def with_numbers(found: Reproduction) -> Reproduction:
    """The same with NaN and infinities as numbers."""
    if found.largest_difference is None:
        return found
    return replace(found, largest_difference=float(found.largest_difference))

"""What runs differ in, as the modern surface answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cloud_ml.models.tracking.metrics import MetricValue


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One of the runs. Times are in seconds.

    ``stages`` says how long after its submission each stage of the last attempt was reached.
    ``duration_s`` is the time from its start to its end; null without either.
    """

    uid: str
    name: str
    experiment: str
    is_job: bool
    state: str
    reason: str = ""
    created_at: datetime
    duration_s: float | None = None
    attempt: int = 1
    stages: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    outputs: int = 0
    output_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RunDifference:
    """A fact that is not the same for all runs, such as the argument ``lr``.

    ``values`` are those of the runs in their order, null where a run has none; secrets are masked.
    ``effect`` is its likely effect on the metric, from the first run to the farthest, and ``share``
    its part of all effects. Both are null where other runs do not tell. ``other_runs`` have another
    value of it than the first run.
    """

    kind: str
    name: str
    values: list[str | None]
    effect: float | None = None
    share: float | None = None
    other_runs: int = 0


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """A metric that some of the runs have.

    ``last`` are the last values of the runs. ``at_step`` are those at ``step``, the last step that
    all have; ``largest_difference`` of all common steps is at the step ``differs_at``. ``steps``
    counts the common steps that were compared.
    """

    name: str
    last: list[MetricValue | None]
    step: int | None = None
    at_step: list[MetricValue] = field(default_factory=list)
    steps: int = 0
    largest_difference: MetricValue | None = None
    differs_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedFile:
    """A file of the code that is not the same for all runs.

    ``digests`` are null where a run does not have the file. ``diff`` is the change from the first
    run to the second, where both are texts and small; ``cut`` if there is more of it.
    """

    path: str
    digests: list[str | None]
    sizes: list[int | None] = field(default_factory=list)
    diff: str = ""
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """What runs differ in: the differences with the largest likely effect on ``metric`` come first.

    ``ranked_by`` other runs of the experiment have told the effects. If there were not ``enough``,
    the order is that of what matters in general. ``said`` explains this in a sentence.
    """

    runs: list[ComparedRun]
    metric: str = ""
    ranked_by: int = 0
    enough: bool = False
    said: str = ""
    differences: list[RunDifference] = field(default_factory=list)
    metrics: list[ComparedMetric] = field(default_factory=list)
    files: list[ComparedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def with_numbers(comparison: RunComparison) -> RunComparison:
    """The same with NaN and infinities as numbers."""
    return replace(
        comparison,
        metrics=[
            replace(
                one,
                last=[None if value is None else float(value) for value in one.last],
                at_step=[float(value) for value in one.at_step],
                largest_difference=None
                if one.largest_difference is None
                else float(one.largest_difference),
            )
            for one in comparison.metrics
        ],
    )

"""Metrics that jobs report."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.settings.sizes import MIB


@dataclass(frozen=True)
class MetricSettings:
    """The points that jobs report with ``cloud_ml.job.report``."""

    series_per_job: int = 1000
    """Most series of one job: a metric of a task is one. Others are refused, with an event that names
    them, and the job goes on.
    """
    points_per_job: int = 10_000_000
    """Most points of one job. Others are refused, with an event, and the job goes on."""
    file_bytes: int = 1024 * MIB
    """Bytes that are read of the reports of one task in one attempt, and of one event file. Others are refused, with an
    event, and the job goes on.
    """
    event_files_per_job: int = 200
    """TensorBoard event files that are read of one job, in the order of their names."""
    files_period_s: float = 5.0
    """How often event files and logs of one job are read at most, unless a study waits for them. They
    are looked for every twenty seconds if the kernel tells of nothing.
    """
    period_s: float = 1.0
    """How often the reports of one job are read at most."""
    progress_period_s: float = 60.0
    """Least time between two events about the progress of a job, and from its start to the first."""
    retention_days: int = 0
    """How long points are kept after the end of their run. Then they are removed, and of each series
    its number of points and its first, last, least and largest value stay. 0: until the run is
    deleted. Trials of a study that goes on keep theirs.
    """
    points_per_answer: int = 10_000
    """Most points of a series in one answer."""

"""What a run may keep of metrics."""

from __future__ import annotations

from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.quotas import UNLIMITED, QuotaOf
from cloud_ml.settings.metrics import MetricSettings

NO_METRICS = MetricLimits(0, 0)


class RunLimits:
    """The limits of runs: those of the settings, and the quota of the organisation. Blocking.

    Args:
        settings: What one run may have.
        quota_of: What an organisation may; ``None`` for any number of points.
    """

    def __init__(self, settings: MetricSettings, quota_of: QuotaOf | None = None) -> None:
        self._settings = settings
        self._quota_of = quota_of

    def of(self, org: str) -> MetricLimits:
        """The limits of a run of an organisation."""
        quota = None if self._quota_of is None else self._quota_of(org).points
        return MetricLimits(
            self._settings.series_per_job,
            self._settings.points_per_job,
            None if quota == UNLIMITED else quota,
        )

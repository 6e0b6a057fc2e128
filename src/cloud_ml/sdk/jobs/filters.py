"""Which jobs a list shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloud_ml.models import codec


@dataclass(frozen=True, kw_only=True)
class JobFilters:
    """Which jobs a list shows, and how much of each; see ``CloudMlClient.list_train_jobs``."""

    state: str | None = None
    name: str | None = None
    framework: str | None = None
    user: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None
    details: bool = False
    metrics: Sequence[str] = ()

    def query(self) -> dict[str, Any]:
        """The filters as parameters of a request."""
        return {
            "state": self.state,
            "name": self.name,
            "framework": self.framework,
            "user": self.user,
            "label": [f"{name}={value}" for name, value in self.labels.items()],
            "created_after": codec.format_time(self.created_after) if self.created_after else None,
            "created_before": codec.format_time(self.created_before)
            if self.created_before
            else None,
            "details": True if self.details else None,
            "metrics": ",".join(self.metrics) or None,
        }

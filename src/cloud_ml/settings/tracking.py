"""Runs, their parameters and tags, and experiments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrackingSettings:
    """What runs and organisations may log. Runs without a job count by ``api.records_per_org``."""

    params_per_run: int = 2000
    """Most parameters of one run."""
    tags_per_run: int = 1000
    """Most tags of one run."""
    experiments_per_org: int = 10_000
    """Most experiments of one organisation, deleted ones among them."""
    job_connections: int = 128
    """Most connections at once from jobs of one organisation to the MLflow endpoint."""
    search_s: float = 10.0
    """A search for runs or experiments that takes longer is ended."""

"""Runs are found by what was logged to them, and what is logged is there as a whole or not at all."""

from __future__ import annotations

from cloud_ml.testing.state.tracking.experiments import ExperimentContract
from cloud_ml.testing.state.tracking.job_runs import JobRunContract
from cloud_ml.testing.state.tracking.logged_batches import LoggedBatchContract
from cloud_ml.testing.state.tracking.run_changes import RunChangeContract
from cloud_ml.testing.state.tracking.searches import RunSearchContract

__all__ = ["TrackingContract"]


class TrackingContract(
    RunSearchContract,
    LoggedBatchContract,
    JobRunContract,
    RunChangeContract,
    ExperimentContract,
):
    """What a store promises of runs and experiments."""

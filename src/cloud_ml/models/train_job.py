"""The name by which programs import train jobs. The classes are in ``jobs.train_job``."""

from __future__ import annotations

from cloud_ml.models.jobs.train_job import RoleSpec, TrainJob

__all__ = ["RoleSpec", "TrainJob"]

"""The name by which programs import model services. The class is in ``services.model_service``."""

from __future__ import annotations

from cloud_ml.models.services.model_service import ModelService

__all__ = ["ModelService"]

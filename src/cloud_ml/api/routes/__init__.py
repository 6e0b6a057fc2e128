"""Routes of the modern surface: they translate and nothing else."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from cloud_ml.api.auth import platform_of
from cloud_ml.api.platform import Platform

Here = Annotated[Platform, Depends(platform_of)]
"""The platform, as a parameter of a route."""

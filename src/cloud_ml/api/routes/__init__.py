"""Routes of the modern surface: they translate and nothing else."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from cloud_ml.api import parameters
from cloud_ml.api.auth import platform_of
from cloud_ml.api.platform import Platform


async def _here(connection: HTTPConnection) -> Platform:
    """Asynchronous, though it waits for nothing: FastAPI calls others on a thread, which costs
    more than they do.
    """
    return platform_of(connection)


CHECKED = (Depends(parameters.check), Depends(parameters.check_path))
"""What the routers of this room ask of every request."""

Here = Annotated[Platform, Depends(_here)]
"""The platform, as a parameter of a route."""

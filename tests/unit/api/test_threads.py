"""No request pays for a thread that it does not need."""

from __future__ import annotations

import inspect

import pytest
from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from cloud_ml.api.routes import jobs, server, storage


def _called(dependant: Dependant) -> list[object]:
    return [dependant.call, *(call for child in dependant.dependencies for call in _called(child))]


@pytest.mark.parametrize("router", [jobs.router, server.router, storage.router])
def test_routes_and_what_they_depend_on_run_in_the_event_loop(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    assert routes
    for route in routes:
        for call in _called(route.dependant):
            assert inspect.iscoroutinefunction(call), (
                f"{route.path}: FastAPI would call {call} on a thread"
            )

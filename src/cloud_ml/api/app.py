"""The HTTP surfaces as one application."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import cloud_ml
from cloud_ml.api import auditing, errors, openapi, resource_routes, v1_compat
from cloud_ml.api.cors import Cors
from cloud_ml.api.direct import Direct
from cloud_ml.api.fds.operations import OPERATIONS
from cloud_ml.api.fds.router import FdsRouter
from cloud_ml.api.middleware import Envelope
from cloud_ml.api.mlflow import router as mlflow
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import (
    admin,
    ask_tell,
    audit,
    experiments,
    jobs,
    models,
    monitoring,
    optuna,
    outputs,
    pages,
    quota,
    replicas,
    reproductions,
    runs,
    runtimes,
    secrets,
    series,
    server,
    storage,
    study_readouts,
    tensorboards,
    tokens,
    uploads,
    watching,
)
from cloud_ml.usecases.resources import Resource

_SAFE = frozenset({"GET", "HEAD"})
_DESCRIPTION = (
    "Train jobs, model services and storage. Every error is one JSON document: see the schema "
    "`Error`. To try requests here, create a token with `cloudml token create --scope jobs:read`, "
    "choose Authorize and enter it under *token*."
)


class _Application(FastAPI):
    """What is ours stands before what is FastAPI's: most requests are answered without it."""

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.front(scope, receive, send)


def _changing_operations(routers: Iterable[APIRouter]) -> frozenset[str]:
    """Operations of the audit log. The original clients' GETs that change something have the names
    of operations that are here anyway.
    """
    endpoints = [
        route.endpoint
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and (route.methods or set()) - _SAFE
    ]
    endpoints += [operation.run for operation in OPERATIONS if operation.method not in _SAFE]
    return auditing.operations_of(endpoints)


def create_app(
    platform: Platform, resources: Sequence[Resource[Any, Any, Any, Any]] = ()
) -> FastAPI:
    """The application over ``platform``, with routes for the kinds of resources that are described.

    Whoever runs it starts the engine and the controller, and calls ``platform.hub.close()`` on the
    way down.
    """
    app = _Application(
        title="Cloud ML",
        version=cloud_ml.__version__,
        description=_DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        # A signature is made for one path, and would not fit the one of a redirect.
        redirect_slashes=False,
        default_response_class=Response,
    )
    app.state.platform = platform
    modern = (
        watching,
        jobs,
        outputs,
        series,
        reproductions,
        experiments,
        runs,
        ask_tell,
        study_readouts,
        optuna,
        models,
        replicas,
        uploads,
        storage,
        secrets,
        tensorboards,
        admin,
        tokens,
        audit,
        quota,
        server,
        runtimes,
        monitoring,
        pages,
    )
    routers = [watching.models, *(room.router for room in modern)]
    routers += [resource_routes.router_for(resource) for resource in resources]
    routers += mlflow.ROUTERS
    for router in (*routers, v1_compat.router):
        app.include_router(router)
    app.state.audited_operations = _changing_operations((*routers, v1_compat.router))
    errors.install(app)
    openapi.install(app)
    # The envelope is outside of all: each answer has an id and a line in the log, also that of a
    # preflight.
    app.front = Envelope(Cors(FdsRouter(Direct(routers, super(_Application, app).__call__))))
    return app

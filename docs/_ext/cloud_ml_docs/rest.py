"""The routes of both HTTP surfaces: the modern one from its OpenAPI document, the original one
from its router.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from fastapi.routing import APIRoute

from cloud_ml.api.app import create_app
from cloud_ml.api.platform import Platform
from cloud_ml.api.v1_compat import accounts, model, train
from cloud_ml_docs.markdown import code, first_paragraph, table


def modern() -> str:
    """Routes of ``/api/v1``, and those that ask for the server's health."""
    rows = [
        (
            code(f"{method.upper()} {path}"),
            _parameters(operation),
            first_paragraph(operation["description"]),
        )
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    ]
    return table(("Route", "Parameters", "What it does"), rows)


def original() -> str:
    """Routes of ``/cloud_ml/v1``."""
    rows = [
        (code(f"{method} /cloud_ml/v1{route.path}"), first_paragraph(route.endpoint.__doc__))
        for route in original_routes()
        for method in sorted(route.methods or ())
    ]
    return table(("Route", "What it does"), rows)


def document() -> dict[str, Any]:
    """The OpenAPI document. No platform is needed to describe one."""
    return create_app(cast("Platform", None)).openapi()


def _parameters(operation: dict[str, Any]) -> str:
    return ", ".join(
        code(one["name"]) for one in operation.get("parameters", ()) if one["in"] != "path"
    )


def original_routes() -> Iterator[APIRoute]:
    """The routes, with their paths below ``/cloud_ml/v1``."""
    for router in (train.router, model.router, accounts.router):
        yield from (route for route in router.routes if isinstance(route, APIRoute))

"""The OpenAPI document of the modern surface, made when somebody asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from cloud_ml.auth import signature
from cloud_ml.models.train_job import TrainJob

_TRAIN_JOB = "TrainJob"
_REFERENCE = "#/components/schemas/{model}"
_SCHEME = "cloudml1"

JOB_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=_TRAIN_JOB)}}},
    }
}
"""A route whose body is a job. Routes read it with our own codec, whose refusals name what was meant."""

_BODIES: dict[str, type] = {_TRAIN_JOB: TrainJob}


def body_of(model: type) -> dict[str, Any]:
    """A route whose body is a ``model`` in JSON, read with our own codec."""
    _BODIES[model.__name__] = model
    reference = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}


OBJECT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""A route whose body is an object's bytes."""


@dataclass(frozen=True, kw_only=True)
class Error:
    """What every refusal looks like. ``code`` is for programs, ``message`` for people.

    ``same_spec`` stands beside ``already_exists`` and says whether what has the name equals what was
    asked for: a client that lost an answer learns so that its first try arrived.
    """

    error: bool
    code: str
    message: str
    field: str | None = None
    value: Any = None
    allowed: str | None = None
    hint: str | None = None
    same_spec: bool | None = None
    request_id: str | None = None


def answers(model: type | None, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route: ``model`` when all is well, else an ``Error``."""
    return {status: {"model": model}, "default": {"model": Error, "description": "Refused, or failed"}}


def bytes_of(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route that sends no JSON."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"content": content}, "default": {"model": Error, "description": "Refused, or failed"}}


def events() -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route that sends events; each ``data`` is JSON, described in the route's words."""
    return {**bytes_of("text/event-stream"), 200: {"content": {"text/event-stream": {"schema": {}}}}}


def known(model: type) -> dict[int | str, dict[str, Any]]:
    """Those of a route that sends nothing to who has it already."""
    return {**answers(model), 304: {"description": "`If-None-Match` names what it is"}}


def install(app: FastAPI) -> None:
    """Have the app answer with our document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 -- only here

    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name, model in _BODIES.items():
        schema = TypeAdapter(model).json_schema(ref_template=_REFERENCE)
        schemas.update(schema.pop("$defs", {}))
        schemas[name] = schema
    document["components"]["securitySchemes"] = {
        _SCHEME: {
            "type": "apiKey",
            "in": "header",
            "name": signature.AUTHORIZATION,
            "description": f"`{signature.SCHEME} <hex>` with {signature.KEY}, {signature.DATE}, {signature.NONCE} "
            f"and {signature.CONTENT}; see the reference page on signatures",
        }
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [{_SCHEME: []}] if path.startswith("/api/") else []
    return document

"""The OpenAPI document of the modern surface, made when somebody asks for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from cloud_ml.auth import signature
from cloud_ml.models.jobs.train_job import TrainJob

_REFERENCE = "#/components/schemas/{model}"
_API_VERSION = "1"
"""That of the surface. The document is for everybody; the version of the server is told to
callers with a key only.
"""
_SCHEME, _TOKEN = "cloudml1", "token"

_MODELS: dict[str, Any] = {}
"""What the document speaks of, by the names of its schemas. FastAPI would make each schema when
a route is declared, which takes a tenth of a second of every start; ours are made when somebody
asks for the document.
"""

_SENT: set[Any] = set()
"""Those of them that clients send."""


def _schema_of(model: Any) -> dict[str, Any]:
    name = (
        getattr(model, "__name__", "")
        if isinstance(model, type) and not get_args(model)
        else _name_of(model)
    )
    _MODELS[name] = model
    return {"$ref": _REFERENCE.format(model=name)}


def _name_of(generic: Any) -> str:
    """A name for such as ``dict[str, list[str]]``."""
    return re.sub(r"\W+", "_", str(generic)).strip("_")


def _json_of(model: Any) -> dict[str, Any]:
    return {"application/json": {"schema": _schema_of(model)}}


def body_of(model: type) -> dict[str, Any]:
    """A route whose body is a ``model`` in JSON, read with our own codec, whose refusals name
    what was meant.
    """
    _SENT.add(model)
    return {"requestBody": {"required": True, "content": _json_of(model)}}


JOB_BODY = body_of(TrainJob)
"""A route whose body is a job."""

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

    ``same_spec`` stands beside ``already_exists`` and says whether what has the name equals what
    was asked for: a client that lost an answer learns so that its first try arrived.
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


def answers(model: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route: ``model`` when all is well, else an ``Error``."""
    good = {"content": _json_of(model)} if model is not None else {}
    return {status: {"description": "Done", **good}, "default": _refusal()}


def _refusal() -> dict[str, Any]:
    return {"description": "Refused, or failed", "content": _json_of(Error)}


def bytes_of(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route that sends no JSON."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"description": "Done", "content": content}, "default": _refusal()}


def events() -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route that sends events; each ``data`` is JSON, described in
    the route's words.
    """
    content: dict[str, Any] = {"text/event-stream": {"schema": {}}}
    gone = {
        "description": "The database was restored from a backup since then: list again, and watch "
        "from there"
    }
    return {
        **bytes_of("text/event-stream"),
        200: {"description": "As they come", "content": content},
        410: gone,
    }


def not_modified_responses(model: Any) -> dict[int | str, dict[str, Any]]:
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

    document = get_openapi(
        title=app.title, version=_API_VERSION, description=app.description, routes=app.routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name, model in sorted(_MODELS.items()):
        mode: Literal["validation", "serialization"] = (
            "validation" if model in _SENT else "serialization"
        )
        schema = TypeAdapter(model).json_schema(ref_template=_REFERENCE, mode=mode)
        schemas.update(schema.pop("$defs", {}))
        schemas[name] = schema
    document["components"]["securitySchemes"] = {
        _SCHEME: {
            "type": "apiKey",
            "in": "header",
            "name": signature.AUTHORIZATION,
            "description": f"`{signature.SCHEME} <hex>` with {signature.KEY}, {signature.DATE}, "
            f"{signature.NONCE} and {signature.CONTENT}; see the reference page on signatures",
        },
        _TOKEN: {
            "type": "http",
            "scheme": "bearer",
            "description": "An access token, made by `cloudml token create`; accepted over TLS and "
            "on loopback. Reading needs the scope RESOURCE:read and changing RESOURCE:write, such "
            "as jobs:read.",
        },
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = (
                [{_SCHEME: []}, {_TOKEN: []}] if path.startswith("/api/") else []
            )
    return document

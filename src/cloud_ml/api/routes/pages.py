"""``/``, ``/docs`` and ``/mlflow/``: what this server is, its OpenAPI document, and a run.

All that the pages load comes from this server. They name no host, so nothing that a request says of
one is repeated.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.errors import NotFound

router = APIRouter(tags=["pages"], default_response_class=Response, include_in_schema=False)

_TYPES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "start.css": "text/css; charset=utf-8",
    "run.js": "text/javascript; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_WHAT = {
    "name": "Cloud ML",
    "description": "This server runs train jobs and serves models.",
    "api": "/api/v1",
    "openapi": "/api/v1/openapi.json",
    "docs": "/docs",
    "health": "/healthz",
}


@router.api_route("/", methods=["GET", "HEAD"])
async def start(request: Request) -> Response:
    """Say what this is: as a page to browsers, as JSON to programs."""
    if _wants_html(request.headers.get("accept", "")):
        return Response(
            _content("start.html"), headers={**_PAGE, "Vary": "Accept"}, media_type="text/html"
        )
    answer = documents.answer(_WHAT)
    answer.headers["Vary"] = "Accept"
    return answer


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs() -> Response:
    """Show the OpenAPI document."""
    return Response(_docs_page(), headers=_PAGE, media_type="text/html")


@router.api_route("/mlflow/", methods=["GET", "HEAD"])
async def run() -> Response:
    """Show a run. MLflow's clients print such addresses; the run stands behind the ``#``."""
    return Response(_content("run.html"), headers=_PAGE, media_type="text/html")


@router.api_route("/docs/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """Send a script or a style of the pages.

    Raises:
        NotFound: There is no such file.
    """
    if name not in _TYPES:
        raise NotFound(f"there is nothing at /docs/{name[:100]}")
    headers = {
        "Content-Type": _TYPES[name],
        "Cache-Control": "public, max-age=3600",
        "Vary": "Accept-Encoding",
    }
    if name.startswith(("start.", "run.")):
        return Response(_content(name), headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(_content(f"{name}.gz"), headers=headers | {"Content-Encoding": "gzip"})
    return Response(gzip.decompress(_content(f"{name}.gz")), headers=headers)


def _wants_html(accept: str) -> bool:
    """Whether a program asks for HTML by name, as browsers do; ``*/*`` of curl is satisfied by
    JSON.
    """
    kinds = {each.partition(";")[0].strip().lower() for each in accept.split(",")}
    return "text/html" in kinds


@cache
def _docs_page() -> bytes:
    page = _content("docs.html").decode()
    for name, digest in json.loads(_content("integrity.json"))["files"].items():
        page = page.replace(f"{{{name}}}", digest)
    return page.encode()


@cache
def _content(name: str) -> bytes:
    return files("cloud_ml.api").joinpath("viewer", name).read_bytes()

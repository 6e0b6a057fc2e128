"""``/metrics``: for the operator's Prometheus, and nobody else."""

from __future__ import annotations

import hmac
import ipaddress

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api.openapi import bytes_of
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.errors import Forbidden
from cloud_ml.observability.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"], default_response_class=Response, dependencies=CHECKED)

_THROUGH_SOMEBODY = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


@router.get("/metrics", responses=bytes_of("text/plain"))
async def metrics(here: Here, request: Request) -> Response:
    """Figures in the text format of Prometheus.

    With ``api.metrics_token`` set, whoever shows it as ``Authorization: Bearer …``; else only this
    very machine.
    """
    _check_allowed(here, request)
    return Response(await here.offload(here.metrics.text), headers={"Content-Type": CONTENT_TYPE})


def _check_allowed(here: Platform, request: Request) -> None:
    token = here.settings.metrics_token
    if token:
        shown = request.headers.get("authorization", "").encode("latin-1", "replace")
        if hmac.compare_digest(shown, f"Bearer {token}".encode()):
            return
    elif _from_here(here, request):
        return
    raise Forbidden(
        "the metrics of this server are not for everybody",
        field="Authorization",
        allowed="the operator's token",
        hint="The operator sets api.metrics_token, and the scraper sends it as a bearer token.",
    )


def _from_here(here: Platform, request: Request) -> bool:
    """Whether the peer is this machine, and nobody whom it stands in for."""
    if (
        here.behind_proxy
        or any(name in request.headers for name in _THROUGH_SOMEBODY)
        or request.client is None
    ):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False

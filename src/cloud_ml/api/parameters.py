"""Parameters in the address: on the modern surface, one that means nothing is refused and not
ignored.
"""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.requests import Request

from cloud_ml.api import tokens
from cloud_ml.api.auth import is_link
from cloud_ml.api.handlers import QUERY, handler_of
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

_KNOWN: dict[Any, dict[str, bool]] = {}
"""What was found out, for each function that answers requests."""


async def check(request: Request) -> None:
    """A dependency of routers.

    Raises:
        InvalidRequest: A parameter is unknown, or is given twice where once is meant.
        Unauthenticated: An access token stands there.
    """
    if not request.scope["query_string"] or is_link(request):
        # the query of a link is judged with its signature: whatever is wrong with it is a 401
        return
    tokens.check_query(request)
    route = request.scope["route"]
    if (known := _KNOWN.get(route.endpoint)) is None:
        known = _KNOWN[route.endpoint] = _parameters(route)
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in given.items():
        if name not in known:
            raise _unknown(name, sorted(known))
        if count > 1 and not known[name]:
            raise common.refuse(name, request.query_params.getlist(name), "one value")


async def check_path(request: Request) -> None:
    """A dependency of routers: otherwise two different paths would be read as the same name.

    Raises:
        InvalidRequest: What is percent-encoded in the path is no UTF-8.
    """
    try:
        unquote_to_bytes(request.scope["raw_path"]).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            "the path is no UTF-8", field="path", allowed="percent-encoded UTF-8"
        ) from None


def check_limit(limit: int, most: int) -> None:
    """Refuse a page that is too long.

    Raises:
        InvalidRequest: ``limit`` is more than ``most``.
    """
    if limit > most:
        raise common.refuse("limit", limit, f"1 to {most}")


def _parameters(route: APIRoute) -> dict[str, bool]:
    """The names of a route's parameters, and whether each may be repeated."""
    return {
        parameter.alias: parameter.many
        for handler in handler_of(route).all()
        for parameter in handler.parameters
        if parameter.place == QUERY
    }


def _unknown(name: str, known: list[str]) -> InvalidRequest:
    if name == "org_id":
        return InvalidRequest(
            "org_id is not a known parameter here; with it, administrators read, cancel, stop and "
            "delete what another organisation has, and nothing else",
            field=name,
            allowed=", ".join(known) or "no parameter",
            hint="Leave org_id out, or use a key of that organisation.",
        )
    near = get_close_matches(name, known, n=1)
    return InvalidRequest(
        f"{name[:80]} is not a known parameter" + (f"; did you mean {near[0]}?" if near else ""),
        field=name[:80],
        allowed=", ".join(known) or "no parameter",
    )

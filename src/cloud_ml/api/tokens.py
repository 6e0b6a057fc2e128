"""Access tokens at the API: where they are accepted, and who their holder is."""

from __future__ import annotations

import ipaddress

from starlette.requests import Request

from cloud_ml.api.platform import Platform
from cloud_ml.auth import basic, bearer, presigned
from cloud_ml.auth.headers import Headers
from cloud_ml.errors import Unauthenticated
from cloud_ml.usecases.access.identities import Identity

FORWARDED = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-real-ip",
    "via",
)
"""Headers by which a proxy says that it passes a request on."""
MLFLOW = "/mlflow/"
"""Where MLflow's clients are served. They know tokens, and users with passwords."""
_ACCEPTED = (
    "TLS, the loopback address, or a proxy with TLS in front of `cloudml server --behind-proxy`"
)


async def authenticate(request: Request, platform: Platform, headers: Headers) -> Identity:
    """The holder of the token that a request carries.

    Raises:
        Unauthenticated: The token does not convince, or it came over plain HTTP or in a way that
            mixes proofs.
    """
    if not request.scope["path"].startswith(("/api/v1/", MLFLOW)):
        raise Unauthenticated(
            "Access tokens are accepted below /api/v1 and /mlflow only.",
            field="Authorization",
            allowed="a signed request here",
        )
    _check_transport(request, platform)
    sent = bearer.read(headers)
    query: bytes = request.scope["query_string"]
    if presigned.SIGNATURE.encode() in query or bearer.is_in_query(query):
        raise Unauthenticated(
            "The request has a bearer token and another proof in its address. Send the header "
            "only.",
            field="Authorization",
            allowed="one proof",
        )
    known = platform.tokens.cached(sent)
    return known if known is not None else await platform.read(platform.tokens.find, sent)


async def authenticate_user(request: Request, platform: Platform, headers: Headers) -> Identity:
    """The holder of the access key that a request carries as user and password.

    Raises:
        Unauthenticated: They do not convince, came over plain HTTP, or were sent by a page.
    """
    _check_transport(request, platform)
    if "origin" in request.headers:
        raise Unauthenticated(
            "A user and a password must not come from a page: browsers send them unasked.",
            field="Authorization",
            allowed="an access token",
        )
    sent = basic.read(headers)
    caller = platform.identities.cached(sent.access_key)
    if caller is None:
        caller = await platform.read(platform.identities.find, sent.access_key)
    sent.check(None if caller is None else caller.secret)
    assert caller is not None
    return caller


def check_query(request: Request) -> None:
    """Tell a caller who sends a token in the address that it belongs into a header.

    Raises:
        Unauthenticated: The address seems to hold one, and nothing else proves who asks.
    """
    if "authorization" not in request.headers and bearer.is_in_query(request.scope["query_string"]):
        raise Unauthenticated(
            "A token must not stand in the address: addresses are logged. Send it in the "
            "header Authorization.",
            field="Authorization",
            allowed="Authorization: Bearer TOKEN",
            hint="Revoke a token that was sent like this: cloudml token revoke ID",
        )


def _check_transport(request: Request, platform: Platform) -> None:
    """Refuse a token that travelled over a network in the clear.

    With ``server.behind_proxy`` the scheme is what a trusted proxy says
    (``server.proxy_addresses``); the header of anybody else was not looked at. Then loopback proves
    nothing: the proxy itself may stand there.

    Raises:
        Unauthenticated: The connection is neither encrypted nor local.
    """
    schemes = request.headers.getlist("x-forwarded-proto")
    if platform.behind_proxy:
        # Of two such fields one is the caller's own.
        if request.scope["scheme"] == "https" and len(schemes) < 2:
            return
        raise _in_the_clear(
            "The proxy must send X-Forwarded-Proto: https and stand in server.proxy_addresses."
        )
    if request.scope["scheme"] == "https":
        return
    if any(name in request.headers for name in FORWARDED):
        raise _in_the_clear(
            "If a proxy with TLS is in front of this server, start it with --behind-proxy."
        )
    if not _is_local(request):
        raise _in_the_clear(
            "Use https, and revoke a token that was sent like this: cloudml token revoke ID"
        )


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _in_the_clear(hint: str) -> Unauthenticated:
    return Unauthenticated(
        "The token or password came over plain HTTP, where others can read it.",
        field="Authorization",
        allowed=_ACCEPTED,
        hint=hint,
    )

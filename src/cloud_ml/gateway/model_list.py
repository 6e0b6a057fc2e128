"""``GET /v1/models``: the services that the holder of a token may call, whichever port is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from cloud_ml.domain.services.routes import Route
from cloud_ml.gateway.access import METADATA, PREDICT, Access
from cloud_ml.gateway.answers import Refusal

PATH = "/v1/models"


class ModelList:
    """Lists services.

    Args:
        routes: All services of the gateway, as they are now.
        access: Who may call.
        base: Beginning of each service's address, such as ``https://host``.
    """

    def __init__(self, routes: Callable[[], Iterable[Route]], access: Access, base: str) -> None:
        self._routes = routes
        self._access = access
        self._base = base

    def refusal(self, token: str) -> Refusal | None:
        """Why the holder of the token is told nothing; ``None`` if the token is good for calls
        of any service.
        """
        org = self._access.organisation_of(token)
        return org if isinstance(org, Refusal) else None

    def body(self, token: str) -> bytes:
        """The services that the token may call, by name, as JSON."""
        org = self._access.organisation_of(token)
        listed = [route for route in self._routes() if route.org == org and route.wanted]
        found = [
            self._entry(route)
            for route in sorted(listed, key=lambda route: route.name)
            if self._open(token, route)
        ]
        return json.dumps({"models": found}, indent=2).encode() + b"\n"

    def _open(self, token: str, route: Route) -> bool:
        if route.open:
            return True
        return any(
            self._access.refusal(token, route.org, route.name, action) is None
            for action in (PREDICT, METADATA)
        )

    def _entry(self, route: Route) -> dict[str, str]:
        name, _, version = route.name.partition("/")
        url = f"{self._base}:{route.port}"
        state = "AVAILABLE" if route.backends else "UNAVAILABLE"
        return {
            "name": name,
            "version": version,
            "state": state,
            "url": url,
            "predict": f"{url}/v1/models/{name}:predict",
        }

"""Model services of a real server, for tests."""

from __future__ import annotations

import json
from typing import Any

from cloud_ml.sdk.messages import Request
from support.server import RealServer, eventually

LIMIT_S = 90.0
_REPLICAS_S = 0.1
"""What changes with a replica alone is no revision of its service."""


class ServiceApi:
    """Requests about services, in the name of the first administrator."""

    def __init__(self, server: RealServer) -> None:
        self._transport = server.client()._transport

    def __call__(self, method: str, target: str, document: Any = None) -> Any:
        body = b"" if document is None else json.dumps(document).encode()
        return self._transport.json(Request(method, f"/api/v1/models{target}", body=body))

    def until(self, name: str, holds: Any) -> Any:
        """The service as soon as it is like that: asked for at each change, and now and then for
        its replicas' sake.
        """
        seen = 0

        def look() -> Any:
            nonlocal seen
            service = self("GET", f"{name}?wait={_REPLICAS_S}&revision={seen}")
            seen = service["revision"]
            return service if holds(service) else None

        return eventually(look, f"{name} as wanted", limit_s=LIMIT_S)


def running(count: int) -> Any:
    """Whether a service has so many replicas, all of its newest template, and all answer."""

    def holds(service: Any) -> bool:
        replicas = service["replicas"]
        return (
            service["phase"] == "Running"
            and service["ready"] == count == len(replicas)
            and all(each["current"] and each["ready"] for each in replicas)
        )

    return holds


def deployed(server: RealServer, model: dict[str, Any]) -> str:
    """The address of a service, made of this document, that answers."""
    ask = ServiceApi(server)
    ask("POST", "", model)
    found: str = ask.until(f"/{model['model_name']}/{model['model_version']}", running(1))[
        "address"
    ]
    return found

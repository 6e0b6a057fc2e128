"""The calls about model services, one method for each route."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import JobEvent, JobEvents
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import (
    Service,
    ServiceLineage,
    ServiceMetrics,
    ServicePage,
    ServiceSignatures,
    ServiceSummary,
    ServiceUpdate,
)
from cloud_ml.sdk.failures import AlreadyCarriedOut, AlreadyDeleted
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, segment, watching
from cloud_ml.sdk.timeouts import QUIET_LOG_S

_PATH = "/api/v1/models"
_JSON = {"Content-Type": "application/json"}


class AsyncServiceCalls:
    """Speaks about services with the server. Every method raises ``CloudMlError`` as
    ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport

    async def create(self, service: ModelService) -> Service:
        """Create once, however often the request has to be sent."""
        request = Request(
            "POST",
            _PATH,
            body=_document(service),
            headers=_JSON,
            idempotency_key=os.urandom(16).hex(),
        )
        return await self._service(request)

    async def get(
        self, name: str, version: str, *, newer_than: int | None = None, wait_s: float = 0.0
    ) -> Service:  # fmt: skip
        """The service as it stands; with ``newer_than`` as soon as its revision is higher or
        ``wait_s`` are over.
        """
        waiting = {} if newer_than is None else {"wait": f"{wait_s:g}", "revision": newer_than}
        request = Request(
            "GET", _path(name, version), query=waiting, read_timeout_s=READ_TIMEOUT_S + wait_s
        )
        return await self._service(request)

    async def all(
        self, *, name: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[ServiceSummary]:
        """The list of services, newest first, at most ``limit`` of them; ``name`` is that of a
        model.
        """
        left = sys.maxsize if limit is None else limit
        after: int | None = None
        while left > 0:
            request = Request(
                "GET", _PATH, query={"limit": min(left, 200), "after": after, "name": name}
            )
            page = codec.decode(
                ServicePage, await self.transport.json(request), ignore_unknown=True
            )
            for service in page.items[:left]:
                yield service
            left -= len(page.items)
            if (after := page.next) is None:
                return

    async def update(self, name: str, version: str, change: ServiceUpdate) -> Service:
        """Change fields of a service."""
        request = Request(
            "PATCH", _path(name, version), body=_document(change), headers=_JSON, once=True
        )  # fmt: skip
        return await self._send_change(name, version, request)

    async def promote(self, name: str, version: str, *, release: int | None = None) -> Service:
        """Serve the candidate, with ``release`` only that one."""
        return await self._decide_candidate(name, version, "promote", {"release": release})

    async def rollback(
        self, name: str, version: str, *, release: int | None = None, to: int | None = None
    ) -> Service:
        """Drop the candidate, or go back; ``release`` is the one that is to go, ``to`` the one
        that is to be served.
        """
        return await self._decide_candidate(
            name, version, "rollback", {"release": release, "to": to}
        )

    async def _decide_candidate(
        self, name: str, version: str, what: str, query: dict[str, int | None]
    ) -> Service:
        request = Request("POST", f"{_path(name, version)}/{what}", query=query, once=True)
        return await self._send_change(name, version, request)

    async def start(self, name: str, version: str) -> Service:
        """Start a saved or stopped service."""
        return await self._send_change(
            name, version, Request("POST", f"{_path(name, version)}/start", once=True)
        )

    async def stop(self, name: str, version: str, *, grace: str | None = None) -> Service:
        """End every replica; the service stays. ``grace`` is the time between SIGTERM and
        SIGKILL.
        """
        request = Request("POST", f"{_path(name, version)}/stop", query={"grace": grace}, once=True)
        return await self._send_change(name, version, request)

    async def delete(self, name: str, version: str, known: Service | None = None) -> Service:
        """Ask for the service's removal.

        Where the first answer was lost, ``known`` is returned, as being deleted.

        Raises:
            NotFound: There is no such service, or nothing was ``known`` of it.
        """
        try:
            return await self._service(Request("DELETE", _path(name, version)))
        except AlreadyDeleted:
            if known is None:
                raise
            return replace(known, deleting=True)

    async def events(self, name: str, version: str, *, after: int = 0) -> list[JobEvent]:
        """What happened to the service, in order, behind the event with the id ``after``."""
        request = Request("GET", f"{_path(name, version)}/events", query={"after": after or None})
        return codec.decode(
            JobEvents, await self.transport.json(request), ignore_unknown=True
        ).items

    async def watch(self, after: int | None) -> AsyncAnswer:
        """Changes of all services, as server-sent events; see ``watching.follow_stream``."""
        return await self.transport.send(watching(f"{_PATH}/-/watch", after))

    async def watch_events(
        self, name: str, version: str, *, after: int | None = None
    ) -> AsyncAnswer:
        """What is said about a service, as server-sent events; see ``watching.follow_events``."""
        return await self.transport.send(watching(f"{_path(name, version)}/events/watch", after))

    async def metrics(self, name: str, version: str) -> ServiceMetrics:
        """What replicas use and were asked."""
        document = await self.transport.json(Request("GET", f"{_path(name, version)}/metrics"))
        return codec.decode(ServiceMetrics, document, ignore_unknown=True)

    async def signatures(
        self, name: str, version: str, *, release: str | None = None
    ) -> ServiceSignatures:
        """What the model can be asked."""
        document = await self.transport.json(
            Request("GET", f"{_path(name, version)}/signatures", query={"release": release})
        )  # fmt: skip
        return codec.decode(ServiceSignatures, document, ignore_unknown=True)

    async def lineage(
        self, name: str, version: str, *, release: str | None = None
    ) -> ServiceLineage:
        """Where the model came from."""
        document = await self.transport.json(
            Request("GET", f"{_path(name, version)}/lineage", query={"release": release})
        )  # fmt: skip
        return codec.decode(ServiceLineage, document, ignore_unknown=True)

    async def log(
        self,
        name: str,
        version: str,
        *,
        replica: int | None = None,
        previous: bool = False,
        lines: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        offset: int = 0,
        installation: bool = True,
        timestamps: bool = False,
    ) -> AsyncAnswer:
        """The output of a replica as a stream of bytes, without the first ``offset``.

        The header ``cloudml-replica`` says which one it is.
        """
        request = Request(
            "GET",
            f"{_path(name, version)}/logs",
            query={
                "replica": replica,
                "previous": previous,
                "lines": lines,
                "follow": follow,
                "attempt": attempt,
                "offset": offset or None,
                "installation": None if installation else "false",
                "timestamps": timestamps,
            },
            headers={"Accept": "text/plain, application/json"},
            read_timeout_s=QUIET_LOG_S if follow else READ_TIMEOUT_S,
        )
        return await self.transport.send(request)

    async def _send_change(self, name: str, version: str, request: Request) -> Service:
        """The service after a change, as it stands now where the answer was lost."""
        try:
            return await self._service(request)
        except AlreadyCarriedOut:
            return await self.get(name, version)

    async def _service(self, request: Request) -> Service:
        document: Any = await self.transport.json(request)
        return codec.decode(Service, document, ignore_unknown=True)


def _path(name: str, version: str) -> str:
    return f"{_PATH}/{segment(name)}/{segment(version)}"


def _document(value: object) -> bytes:
    document = {name: given for name, given in codec.encode(value).items() if given is not None}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

"""How callers come to services: a port for each, and a route that names the replicas that take
calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable

from cloud_ml.controller.routing.gateway import Gateway
from cloud_ml.controller.routing.ports import Ports
from cloud_ml.controller.routing.readiness import ReadinessProber
from cloud_ml.domain.services.kind import ReplicaRecord, ServiceRecord
from cloud_ml.domain.services.routes import SOCKET, Backend, Route
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.services.spec import call_timeout_s
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.errors import Unavailable

_TRIES = 200
logger = logging.getLogger(__name__)


class RoutePublisher:
    """Tells the gateway of services. Belongs to one event loop."""

    def __init__(
        self, gateway: Gateway, ports: Ports, endpoints: Endpoints, prober: ReadinessProber
    ) -> None:
        self._gateway = gateway
        self._ports = ports
        self._endpoints = endpoints
        self._prober = prober
        self._choosing = asyncio.Lock()

    def begin(self, services: Iterable[ServiceRecord], uids: Collection[str] | None = None) -> None:
        """What there is when a controller begins: every port is known before one is given out.

        ``uids`` are those of all services, also of any that cannot be read; left out: those of
        ``services``.
        """
        found = list(services)
        for service in found:
            if service.status.port:
                self._ports.note(service.key.uid, service.status.port, service.key.org)
        for service in found:
            # Wanted services keep the route that the gateway already has, until ``show`` updates
            # it.
            if service.status.port and not _is_routed(service):
                try:
                    self._gateway.set(service.key.uid, route(service))
                except Exception:  # one that cannot be told to the gateway keeps no other from it
                    logger.exception("a model service has no route", extra={"uid": service.key.uid})
        self._gateway.keep([service.key.uid for service in found] if uids is None else uids)

    async def choose(self, service: ServiceRecord) -> int:
        """A port for a service that has none, which the gateway could have; 0 where there is
        none.
        """
        async with self._choosing:
            uid = service.key.uid
            if port := self._ports.of(uid):  # chosen a moment ago, and not committed yet
                return port
            for port in self._ports.candidates(service.key.org)[:_TRIES]:
                self._gateway.set(uid, route(service, port=port))
                self._ports.note(uid, port, service.key.org)
                # Where no gateway runs at present, nothing settles: the next one will have the port.
                await self._gateway.settled()
                if port not in self._gateway.unbound:
                    return port
        logger.warning("no port is free for a model service", extra={"service": service.key.name})
        self.forget(service.key.uid)
        return 0

    def no_port(self, org: str) -> str:
        """Why a service of an organisation has no port, as a sentence."""
        if self._ports.has_share(org):
            return (
                f"services of {org} have {self._ports.most} ports, all that one "
                "organisation may have (gateway.ports_share); delete services that are not needed"
            )
        return (
            f"no port is free: of the {self._ports.total} of this server (gateway.ports), model "
            f"services have {self._ports.given}; failed and stopped ones keep theirs until they "
            "are deleted"
        )

    async def show(
        self, service: ServiceRecord, replicas: Collection[ReplicaRecord], *, wait: bool
    ) -> None:
        """Let callers come to the replicas that answer and are to stay; ``wait`` until that is
        so.
        """
        if not service.status.port:
            return
        self._ports.note(service.key.uid, service.status.port, service.key.org)
        desired = {one.number for one in service.status.wishes}
        taking = [
            each
            for each in replicas
            if each.status.phase is Phase.RUNNING
            and each.delete_requested_at is None
            and int(each.key.name.rpartition("-")[2]) in desired
            and (self._prober.ready(each.key.uid) or not self._prober.known(each.key.uid))
        ]
        self._gateway.set(service.key.uid, route(service, self._backends(taking)))
        if wait:
            await self._gateway.settled()

    def _backends(self, replicas: Collection[ReplicaRecord]) -> list[Backend]:
        """Where replicas are called. One without an address is left out: the prober cannot reach
        it either, and has this service looked at again when it can.
        """
        found = []
        for each in replicas:
            with contextlib.suppress(Unavailable):
                address = self._endpoints.address(each.key.uid, SOCKET)
                found.append(Backend(each.key.uid, address, release=release_of(each)))
        return found

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._gateway.drop(uid)
        self._ports.free(uid)


def release_of(replica: ReplicaRecord) -> int:
    """The number of what a replica was made of."""
    return replica.spec.template


def route(service: ServiceRecord, backends: Collection[Backend] = (), *, port: int = 0) -> Route:
    """A service as the gateway is to serve it."""
    tried = service.spec.candidate
    return Route(
        port=port or service.status.port,
        org=service.key.org,
        name=service.key.name,
        open=service.spec.submitted.access == "open",
        wanted=_is_routed(service),
        backends=tuple(sorted(backends, key=lambda each: each.uid)),
        candidate=tried.template if tried is not None else 0,
        share=_share(service, backends),
        timeout_s=call_timeout_s(service.spec.submitted) or 0.0,
        deleting=service.delete_requested_at is not None,
    )


def _share(service: ServiceRecord, backends: Collection[Backend]) -> int:
    """Percent of calls for the candidate: what was asked for, or as much of it as there are
    replicas of it.

    Where what is served lacks replicas as well, as both do while they grow, the candidate lacks
    what it has fewer.
    """
    tried, candidates = service.spec.candidate, candidates_of(service.spec, service.status)
    if tried is None or not candidates:
        return 0
    there = min(candidates, sum(each.release == tried.template for each in backends))
    count = replicas_of(service.spec, service.status)
    serving = min(count, sum(each.release != tried.template for each in backends)) or count
    return min(tried.share, tried.share * there * count // (candidates * serving))


def _is_routed(service: ServiceRecord) -> bool:
    failed = service.status.phase is ServicePhase.FAILED
    return (
        service.spec.desired is Desired.RUN and service.delete_requested_at is None and not failed
    )

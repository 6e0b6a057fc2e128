"""All services of the gateway, and the ports that they answer at."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cloud_ml import open_files
from cloud_ml.domain.services.routes import Figures, Route
from cloud_ml.gateway.access import Access
from cloud_ml.gateway.applications import ApplicationFront, ApplicationHead
from cloud_ml.gateway.call import Bounds
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.config import GatewayConfig, Instruction
from cloud_ml.gateway.connection_limit import ConnectionLimit
from cloud_ml.gateway.dialer import Dialer
from cloud_ml.gateway.fronts import GrpcFront, RestFront, grpc_too_large, no_room
from cloud_ml.gateway.model_list import ModelList
from cloud_ml.gateway.services import Service
from cloud_ml.gateway.used_tickets import UsedTickets
from cloud_ml.net.budget import Budget
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.cors import Cors, parse_origins
from cloud_ml.net.http1.heads import Heads
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.http_requests import HttpOverHttp2
from cloud_ml.net.http2.stream import Limits as Http2Limits
from cloud_ml.net.listening import Alive, ProtocolSniffer
from cloud_ml.net.loop_iteration import LoopIteration

_BACKLOG = 2048
logger = logging.getLogger(__name__)


class Gateway:
    """Serves what it is told, on a port for each service. Belongs to one event loop."""

    def __init__(
        self,
        config: GatewayConfig,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._iteration = LoopIteration(loop, config.caller_turn_units)
        self._clock = Clock(loop)
        self._alive: dict[int, Alive] = {}
        most = min(config.connections, open_files.connections_that_fit(open_files.limit()))
        self._room = ConnectionLimit(most, self._alive.values)
        self._leaving: list[Alive] = []
        self._access = Access(config.token_limit_s)
        self._bounds = Bounds(
            config.waiting, config.waiting_s, config.in_flight, config.attempts, config.timeout_s,
            config.stream_unread_bytes, config.open_health,
        )  # fmt: skip
        self._tickets = UsedTickets()
        self._limits = ClientLimits(
            body_bytes=config.message_limit_bytes,
            head_bytes=config.answer_head_bytes,
            interim=config.interim_answers,
            control_frames=config.control_frames,
            stalled_s=config.answer_pause_s,
            settled_s=config.replica_settings_s,
            head_s=config.replica_head_s,
            unread_s=config.replica_unread_s,
            window=config.replica_window_bytes,
            turn_units=config.replica_turn_units,
            streams=config.replica_streams,
        )
        self._tls = tls
        self._dialer = Dialer(loop, config.job_sockets)
        self._bodies = Budget(config.bodies_bytes)
        self._bodies_of: dict[str, Budget] = {}
        self._cors = Cors(parse_origins(config.cors_origins))
        scheme, host = "https" if tls else "http", config.public_host or config.host
        base = f"{scheme}://{f'[{host}]' if ':' in host else host}"
        self._services: dict[str, Service] = {}
        self._applications: dict[str, Service] = {}
        self._models = ModelList(
            lambda: [each.route for each in self._services.values() if not each.route.label],
            self._access,
            base,
        )
        self._sockets: dict[int, socket.socket] = {}
        self._servers: dict[int, asyncio.AbstractServer] = {}
        self._known = Instruction()
        self.unbound: dict[int, str] = {}
        self._clock.every_second(self._tick)
        self._clock.start()

    # --- what the server tells ---

    async def follow(
        self, instruction: Instruction, inherited: Mapping[int, socket.socket] | None = None
    ) -> None:
        """Serve as told from now on; ``inherited`` are sockets of a predecessor that listen
        already.
        """
        routes = {**self._known.routes, **instruction.routes}
        for uid in instruction.drop:
            routes.pop(uid, None)
        if instruction.keep is not None:
            routes = {uid: route for uid, route in routes.items() if uid in instruction.keep}
        if instruction.keys is not None:
            self._access.learn(instruction.keys)
        self._known = Instruction(
            routes, keys=instruction.keys if instruction.keys is not None else self._known.keys
        )
        if inherited:
            self._tickets.inherit(instruction.tickets)
        # Before others are opened: a port may have passed from one service to another.
        for uid in [uid for uid in self._services if uid not in routes]:
            self._close(uid)
        self.unbound.clear()
        self._sockets |= inherited or {}
        for uid, route in routes.items():
            await self._open(uid, route)
        used = {route.port for route in routes.values()}
        for port in [port for port in self._sockets if port not in used]:
            self._unlisten(port)

    async def _open(self, uid: str, route: Route) -> None:
        service = self._services.get(uid)
        moved = service is not None and service.route.port != route.port
        if service is not None and moved and not route.label:
            self._unlisten(service.route.port)
        if service is None:
            service = self._services[uid] = Service(
                route,
                self._access,
                self._models,
                bounds=self._bounds_of(route),
                limits=self._limits,
                iteration=self._iteration,
                loop=self._loop,
                dialer=self._dialer,
                bodies=self._bodies_of.setdefault(
                    route.org, Budget(self._config.organisation_bodies_bytes, parent=self._bodies)
                ),
            )
        elif service.route != route:
            service.change(route)
        if route.label:
            self._applications[route.label] = service
        if route.port in self._servers:
            return
        try:
            listening = self._sockets.get(route.port) or self._listen(
                self._host_of(route), route.port
            )
            self._sockets[route.port] = listening
            # Beneath is a descriptor of its own: closing the server must not close what a successor
            # may want.
            self._servers[route.port] = await self._loop.create_server(
                self._greeter_of(service),
                sock=listening.dup(),
                ssl=self._tls_of(route),
                backlog=_BACKLOG,
            )
        except OSError as error:
            self.unbound[route.port] = os.strerror(error.errno or 0)
            if error.errno == errno.EACCES:
                self.unbound[route.port] += (
                    ": the gateway has no rights of root (net.ipv4.ip_unprivileged_port_start)"
                )
            logger.warning(
                "port %d of %s cannot be had: %s", route.port, route.name, self.unbound[route.port]
            )

    def _listen(self, host: str, port: int) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        made = socket.socket(
            family, kind, protocol
        )  # with a protocol: asyncio then switches Nagle's algorithm off
        try:
            # Else connections in TIME_WAIT keep a port from being bound for a minute after a crash.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
        return made

    def _bounds_of(self, route: Route) -> Bounds:
        applications = self._config.applications
        if not route.label or applications is None:
            return self._bounds
        return replace(self._bounds, waiting_s=applications.start_s)

    def _host_of(self, route: Route) -> str:
        applications = self._config.applications
        return self._config.host if not route.label or not applications else applications.host

    def _tls_of(self, route: Route) -> ssl.SSLContext | None:
        applications = self._config.applications
        return None if route.label and applications and not applications.tls else self._tls

    def _greeter_of(self, service: Service) -> Callable[[], asyncio.BaseProtocol]:
        alive = self._alive[service.route.port] = Alive()
        if service.route.label:
            return self._application_greeter(alive)
        return self._greeter(service, alive)

    def _http1_limits(self, budget: Budget, refused: Callable[[Any], bool]) -> Http1Limits:
        config = self._config
        return Http1Limits(
            body_bytes=config.message_limit_bytes,
            answer_s=config.timeout_s,
            half_closed_s=config.caller_http1_half_closed_s,
            budget=budget,
            refused=refused,
            unread_budget=budget,
            head_bytes=config.caller_head_bytes,
            dropped_body_bytes=config.caller_dropped_body_bytes,
            in_pieces=True,
            head_s=config.caller_http1_head_s,
            body_s=config.caller_http1_body_s,
            idle_s=config.caller_http1_idle_s,
            pipelined=config.caller_http1_pipelined,
            linger_s=config.caller_http1_linger_s,
        )

    def _application_greeter(self, alive: Alive) -> Callable[[], ProtocolSniffer]:
        """Browsers speak HTTP/1.1 with applications; a preface of HTTP/2 is a request that is none."""
        applications = self._config.applications
        assert applications is not None
        budget = Budget(self._config.organisation_bodies_bytes, parent=self._bodies)
        front = ApplicationFront(
            self._applications.get,
            self._access,
            self._tickets,
            domain=applications.domain,
            secure=applications.secure,
            loop=self._loop,
        )
        limits, heads = self._http1_limits(budget, front.refused), Heads(front.understand)

        def connection() -> Http1Connection[ApplicationHead]:
            return Http1Connection(front, heads, limits, self._iteration, self._clock)

        return lambda: ProtocolSniffer(
            connection, connection, alive, self._room.make_room, self._config.caller_greeting_s
        )

    def _greeter(self, service: Service, alive: Alive) -> Callable[[], ProtocolSniffer]:
        config, iteration = self._config, self._iteration
        budget, rest = service.bodies, RestFront(service, self._loop, self._cors)
        limits1 = self._http1_limits(budget, rest.refused)
        grpc = GrpcFront(service, self._loop, HttpOverHttp2(rest, limits1, self._clock, self._loop))
        limits2 = Http2Limits(
            config.message_limit_bytes, grpc_too_large(config.message_limit_bytes),
            budget=budget, no_room=no_room, refused=grpc.refused, unread_budget=budget,
            head_bytes=config.caller_head_bytes,
            empty_frames=config.caller_empty_frames, kept_head_bytes=config.caller_kept_head_bytes,
            streams=config.caller_http2_streams, window=config.caller_http2_window_bytes,
            head_s=config.caller_http2_head_s, body_s=config.caller_http2_body_s,
            unread_s=config.caller_http2_unread_s, idle_s=config.caller_http2_idle_s,
        )  # fmt: skip
        heads = Heads(rest.understand)
        return lambda: ProtocolSniffer(
            lambda: Http1Connection(rest, heads, limits1, iteration, self._clock),
            lambda: Http2Connection(grpc, limits2, iteration),
            alive,
            self._room.make_room,
            config.caller_greeting_s,
        )

    def _close(self, uid: str) -> None:
        service = self._services.pop(uid)
        if not service.route.label:
            self._unlisten(service.route.port)
        elif self._applications.get(service.route.label) is service:
            del self._applications[service.route.label]
        service.close()
        if all(each.route.org != service.route.org for each in self._services.values()):
            del self._bodies_of[service.route.org]

    def _unlisten(self, port: int) -> None:
        """Close a port and its connections, so that clients connect to what comes after it."""
        server, listening = self._servers.pop(port, None), self._sockets.pop(port, None)
        if server is not None:
            server.close()
        if listening is not None:
            listening.close()
        alive = self._alive.pop(port, None)
        if alive is not None:
            self._leaving.append(alive)
            alive.leave()

    # --- what it tells ---

    def figures(self) -> dict[str, Figures]:
        """What was counted, by service."""
        return {uid: service.figures() for uid, service in self._services.items()}

    @property
    def known(self) -> Instruction:
        """What it serves and has seen, for a successor."""
        return replace(self._known, tickets=self._tickets.used)

    @property
    def sockets(self) -> Mapping[int, socket.socket]:
        """What listens, by port."""
        return self._sockets

    # --- time, and the end ---

    def _tick(self, now: float) -> None:
        self._leaving = [each for each in self._leaving if len(each)]
        for alive in [*self._alive.values(), *self._leaving]:
            alive.tick(now)
        for service in self._services.values():
            service.tick(now)

    async def drain(self, seconds: float) -> None:
        """Take no connection any more, answer what is under way, and end."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        # A successor that inherited the sockets has descriptors of its own: they go on to listen.
        for listening in self._sockets.values():
            listening.close()
        self._sockets.clear()
        await asyncio.gather(
            *(alive.drain(seconds) for alive in [*self._alive.values(), *self._leaving])
        )
        self._clock.stop()
        for service in self._services.values():
            service.close()

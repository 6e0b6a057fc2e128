"""A replica as the gateway reaches it: one connection for gRPC, as many as are needed for
HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypedDict

from cloud_ml.domain.services.routes import Backend
from cloud_ml.errors import Unavailable
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.dialer import Dialer
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import Http2Client
from cloud_ml.net.budget import Budget
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.work_share import WorkShare

_SHUN_S, _SHUN_LONGEST_S = 0.05, 1.0
_BAR_S, _BAR_LONGEST_S, _BAR_FORGIVEN_S = 0.5, 10.0, 60.0
_IDLE_KEPT = 64


class PendingCall(Protocol):
    """What is to be done once there is a connection."""

    def over(self, client: Http2Client | Http1Client) -> None:
        """Go."""

    def failed(self, *, refused: bool, too_large: bool = False) -> None:
        """There is no connection."""


class _Shared(TypedDict):
    """What all connections to a replica have in common."""

    share: WorkShare
    report: Callable[[str], None]
    bodies: Budget


class Replica:
    """Connects when something is to be sent; remembers for a moment that nobody answered, or that
    rules were broken.

    Args:
        backend: Where it is.
        limits: What it may send.
        iteration: Of the loop.
        loop: The loop.
        dialer: Connects to it.
        share: The work for replicas of this service in a turn of the loop.
        report: Called with a reason when a connection is closed because the replica broke a rule or
            a bound.
        bodies: What bodies may take.
    """

    def __init__(
        self,
        backend: Backend,
        limits: ClientLimits,
        iteration: LoopIteration,
        loop: asyncio.AbstractEventLoop,
        *,
        dialer: Dialer,
        share: WorkShare,
        report: Callable[[Replica, str], None],
        bodies: Budget,
    ) -> None:
        self.backend = backend
        self.in_flight = 0
        self.requests = 0
        self.gone = False
        self._limits = limits
        self._iteration = iteration
        self._loop = loop
        self._dialer = dialer
        self._report = report
        self._shared: _Shared = {"share": share, "report": self._shun_misbehaved, "bodies": bodies}
        self._grpc: Http2Client | None = None
        self._draining: set[Http2Client] = set()
        self._idle: list[Http1Client] = []
        self._busy: set[Http1Client] = set()
        self._pending_calls: deque[PendingCall] = deque()
        self._shunned_until = 0.0
        self._shun_s = _SHUN_S
        self._barred_until = self._reported_at = 0.0
        self._bar_s = _BAR_S
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def shunned(self) -> bool:
        """Whether nobody answered there a moment ago, or rules were broken."""
        now = self._loop.time()
        return now < self._shunned_until or now < self._barred_until

    def grpc(self, pending: PendingCall) -> None:
        """Give the call the connection for gRPC, now or when it is made."""
        if self._grpc is not None and self._grpc.open:
            pending.over(self._grpc)
            return
        self._pending_calls.append(pending)
        if len(self._pending_calls) == 1:
            self._begin(self._connect_grpc())

    def http(self, pending: PendingCall) -> None:
        """Give the call a connection for HTTP/1.1 that nobody uses."""
        while self._idle:
            client = self._idle.pop()
            if client.open:
                self._busy.add(client)
                pending.over(client)
                return
        self._begin(self._connect_http(pending))

    def tick(self) -> None:
        """A second passed."""
        if self._grpc is not None:
            self._grpc.tick()
        self._draining = {each for each in self._draining if not each.lost}
        for each in list(self._draining):
            each.tick()
        for client in list(self._busy):
            client.tick()

    def leave(self) -> None:
        """Take nothing new; what is under way goes on."""
        self.gone = True
        if self._grpc is not None:
            self._grpc.leave()
        for client in self._idle:
            client.close()
        self._idle.clear()

    def cut(self) -> None:
        """End every connection."""
        self.leave()
        for task in self._tasks:
            task.cancel()
        for client in list(self._busy):
            client.close()
        for each in list(self._draining):
            each.abort()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        made = await self._dialer.connect(self.backend.address, make)
        self._shunned_until, self._shun_s = 0.0, _SHUN_S
        return made

    def _shun(self) -> None:
        self._shunned_until = self._loop.time() + self._shun_s
        self._shun_s = min(self._shun_s * 2, _SHUN_LONGEST_S)

    def _shun_misbehaved(self, reason: str) -> None:
        """A connection is closed because of what the replica did: it gets no call for a moment."""
        now = self._loop.time()
        if now - self._reported_at > _BAR_FORGIVEN_S:
            self._bar_s = _BAR_S
        self._reported_at = now
        # Connections that are closed together count as one fault.
        if now >= self._barred_until:
            self._barred_until = now + self._bar_s
            self._bar_s = min(self._bar_s * 2, _BAR_LONGEST_S)
        self._report(self, reason)

    async def _connect_grpc(self) -> None:
        client: Http2Client | None = None
        try:
            client = Http2Client(self._limits, self._iteration, self._left_grpc, **self._shared)
            made = client
            await self._open(lambda: made)
        except (Unavailable, OSError):
            client = None
            self._shun()
        self._grpc = client
        # Taken out first: who fails may ask for a connection again at once, which begins the next
        # try.
        pending_calls, self._pending_calls = self._pending_calls, deque()
        for pending in pending_calls:
            if client is not None and client.open:
                pending.over(client)
            else:
                pending.failed(refused=True)
        # ``leave`` came while the connection was made, and had none to tell.
        if self.gone and client is not None:
            client.leave()

    def _left_grpc(self, client: Http2Client) -> None:
        """The connection takes no further call; what is under way on it goes on."""
        if self._grpc is client:
            self._grpc = None
        if not client.lost:
            self._draining.add(client)

    async def _connect_http(self, pending: PendingCall) -> None:
        try:
            client = Http1Client(self._limits, self._free, self._lost_http, **self._shared)
            await self._open(lambda: client)
        except (Unavailable, OSError):
            self._shun()
            pending.failed(refused=True)
            return
        self._busy.add(client)
        pending.over(client)

    def _free(self, client: Http1Client) -> None:
        self._busy.discard(client)
        if self.gone or len(self._idle) >= _IDLE_KEPT:
            client.close()
        else:
            self._idle.append(client)

    def _lost_http(self, client: Http1Client) -> None:
        self._busy.discard(client)
        with contextlib.suppress(ValueError):
            self._idle.remove(client)

"""How browsers come to applications: the gateway is told of each, and says which are idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from cloud_ml.controller.routing.gateway import Gateway
from cloud_ml.domain.services.routes import SOCKET, Backend, Route
from cloud_ml.domain.tensorboards.activity import desired_for
from cloud_ml.domain.tensorboards.spec import TensorBoardRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.errors import CloudMlError, Unavailable
from cloud_ml.usecases.tensorboards.tensorboards import label_of

_LOOK_S = 1.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Standing:
    """What was wanted of an application when it was last looked at, and where it stood."""

    desired: Desired
    phase: Phase


class ApplicationRoutes:
    """Tells the gateway of applications. Belongs to one event loop.

    Args:
        gateway: Is told.
        endpoints: Knows where applications are called.
        port: The port of all applications.
        idle_s: An application pauses after so many seconds without a request.
        change: Wants something else of the application with this uid.
    """

    def __init__(
        self,
        gateway: Gateway,
        endpoints: Endpoints,
        *,
        port: int,
        idle_s: float,
        change: Callable[[str, Desired], Awaitable[None]],
    ) -> None:
        self._gateway = gateway
        self._endpoints = endpoints
        self._port = port
        self._idle_s = idle_s
        self._change = change
        self._known: dict[str, _Standing] = {}
        self._some = asyncio.Event()
        self._news = asyncio.Condition()

    async def settled(self, uid: str) -> None:
        """Wait until the gateway has heard of an application."""
        async with self._news:
            await self._news.wait_for(lambda: uid in self._known)
        await self._gateway.settled()

    def begin(self, records: Iterable[TensorBoardRecord]) -> None:
        """Tell of all that there are when a controller begins."""
        for record in records:
            self._tell(record)

    async def show(self, record: TensorBoardRecord) -> None:
        """Tell the gateway how an application stands now."""
        self._tell(record)
        async with self._news:
            self._news.notify_all()

    def _tell(self, record: TensorBoardRecord) -> None:
        status, workload = record.status, record.spec.workload
        uid, ends = record.key.uid, record.delete_requested_at is not None or status.phase.terminal
        runs = not ends and status.phase is Phase.RUNNING and workload.desired is Desired.RUN
        self._gateway.set(
            uid,
            Route(
                port=self._port,
                org=record.key.org,
                name=f"tensorboard {record.key.name}",
                wanted=not ends,
                backends=self._backends(uid) if runs else (),
                label=label_of(uid),
                key=record.spec.key,
            ),
        )
        if ends:
            self._known.pop(uid, None)
            return
        self._known[uid] = _Standing(workload.desired, status.phase)
        self._some.set()

    def drop(self, uid: str) -> None:
        """The application is gone."""
        self._gateway.drop(uid)
        self._known.pop(uid, None)
        if not self._known:
            self._some.clear()

    async def run(self) -> None:
        """Pause and wake applications while there are any. Never returns."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Compare what is wanted of each with what the gateway has counted."""
        # Iterate over a copy: applications may come and go during ``await``.
        for uid, known in list(self._known.items()):
            figures = self._gateway.figures.get(uid)
            desired = desired_for(known.desired, known.phase, figures, self._idle_s)
            if desired is known.desired:
                continue
            try:
                await self._change(uid, desired)
            except CloudMlError as error:  # the next look tries again
                logger.warning(
                    "an application cannot be paused or started",
                    extra={"uid": uid, "error": str(error)},
                )

    def _backends(self, uid: str) -> tuple[Backend, ...]:
        with contextlib.suppress(Unavailable):
            return (Backend(uid, self._endpoints.address(uid, SOCKET)),)
        return ()

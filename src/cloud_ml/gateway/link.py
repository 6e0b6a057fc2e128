"""The server's side: finds the gateway's process or starts one, and keeps it told. See
``controller.routing.gateway``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloud_ml.daemons import DaemonConnection, Resident
from cloud_ml.domain.services.routes import CallingKey, Figures, Route
from cloud_ml.errors import Unavailable
from cloud_ml.gateway.certificates import CertificateWatcher
from cloud_ml.gateway.config import LOG_NAME, SOCKET_NAME, TOKEN_NAME, GatewayConfig, Instruction
from cloud_ml.models import codec

_LINE_BYTES = 256 << 20
_ANSWER_S, _SETTLED_S = 10.0, 5.0
_FIGURES_S = 1.0
_AGAIN_S, _AGAIN_LONGEST_S = 0.2, 10.0
logger = logging.getLogger(__name__)


class GatewayLink:
    """One server's line to the gateway of its data folder.

    The process is started when there is something to serve for the first time.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._folder = Path(config.folder)
        self._gateway = Resident(
            "gateway", "cloud_ml.gateway.main", self._folder, SOCKET_NAME, LOG_NAME,
            "the gateway refuses", _LINE_BYTES, _ANSWER_S,
        )  # fmt: skip
        self._certificate = CertificateWatcher(config.tls_cert, config.tls_key)
        self._connection: DaemonConnection | None = None
        self._routes: dict[str, Route] = {}
        self._keys: Mapping[str, CallingKey] | None = None
        self._pending_uids: set[str] = set()
        self._keys_pending = False
        self._all: tuple[str, ...] | None = None
        self._revision = self._pushed_revision = 0
        self._news = asyncio.Event()
        self._settled = asyncio.Condition()
        self.figures: Mapping[str, Figures] = {}
        self.unbound: Mapping[int, str] = {}

    # --- what the controller tells ---

    def set(self, uid: str, route: Route) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        if self._routes.get(uid) != route:
            self._routes[uid] = route
            self._pending_uids.add(uid)
            self._tell()

    def drop(self, uid: str) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        if self._routes.pop(uid, None) is not None:
            self._pending_uids.add(uid)
            self._tell()

    def keep(self, uids: Collection[str]) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        if self._routes or (self._folder / SOCKET_NAME).exists():
            self._all = tuple(uids)
            self._tell()

    def learn(self, keys: Mapping[str, CallingKey]) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        if keys != self._keys:
            self._keys, self._keys_pending = keys, True
            if self._routes:
                self._tell()

    def _tell(self) -> None:
        self._revision += 1
        self._news.set()

    async def settled(self) -> bool:
        """See ``controller.routing.gateway.Gateway``."""
        revision = self._revision
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_S), self._settled:
                await self._settled.wait_for(lambda: self._pushed_revision >= revision)
                return True
        return False

    # --- the line ---

    async def run(self) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        again_s = _AGAIN_S
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        _FIGURES_S if self._connection is not None else None
                    ):
                        await self._news.wait()
                # Before speaking: news that come meanwhile lead to another round.
                self._news.clear()
                try:
                    await self._speak()
                    again_s = _AGAIN_S
                except Exception as error:
                    expected = isinstance(error, (OSError, EOFError, ValueError, Unavailable))
                    logger.warning(
                        "the gateway does not answer; trying again",
                        exc_info=not expected,
                        extra={"error": str(error)},
                    )
                    self._disconnect()
                    self._news.set()
                    await asyncio.sleep(again_s)
                    again_s = min(again_s * 2, _AGAIN_LONGEST_S)
        finally:
            self._disconnect()

    async def close(self) -> None:
        """See ``controller.routing.gateway.Gateway``."""
        with contextlib.suppress(OSError, EOFError, ValueError, Unavailable):
            self._connection = self._connection or await self._open()
            await self._exchange({"retire": True, "if_idle": True})
        self._disconnect()

    async def _speak(self) -> None:
        if (
            renewed := self._certificate.renewed()
        ) is not None and renewed != self._config.certificate:
            logger.info(
                "the certificate of services has changed: another gateway takes over with it"
            )
            self._config = replace(self._config, certificate=renewed)
            self._disconnect()
        if self._connection is None:
            await self._connect()
            self._pending_uids |= set(self._routes)
            self._keys_pending = self._keys is not None
        if self._revision > self._pushed_revision or self._pending_uids or self.unbound:
            await self._push()
        found = (await self._exchange({"figures": True}))["figures"]
        self.figures = {
            uid: codec.decode(Figures, each, ignore_unknown=True) for uid, each in found.items()
        }

    async def _push(self) -> None:
        revision, pending_uids, everything, keys = (
            self._revision,
            self._pending_uids,
            self._all,
            self._keys_pending,
        )
        # Before the exchange: what is set while it runs is told by the next one.
        self._pending_uids, self._all, self._keys_pending = set(), None, False
        instruction = Instruction(
            {uid: self._routes[uid] for uid in pending_uids if uid in self._routes},
            tuple(uid for uid in pending_uids if uid not in self._routes),
            None if everything is None else tuple({*everything, *self._routes}),
            self._keys if keys else None,
        )
        try:
            answer = await self._exchange({"tell": codec.encode(instruction)})
        # Also when cancelled: the gateway may not have got it, and being told twice changes
        # nothing.
        except BaseException:
            self._pending_uids |= pending_uids
            self._all = self._all or everything
            self._keys_pending = self._keys_pending or keys
            raise
        self.unbound = {int(port): why for port, why in answer["unbound"].items()}
        async with self._settled:
            self._pushed_revision = revision
            self._settled.notify_all()

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            raise EOFError("not connected")
        return await self._connection.exchange(request)

    async def _connect(self) -> None:
        """Find the gateway of a predecessor, or start one: it takes over from one with another
        configuration.
        """
        config = codec.encode(self._config)
        with contextlib.suppress(OSError, EOFError, ValueError):
            self._connection = await self._open()
            if (await self._exchange({}))["config"] == config:
                return
        self._disconnect()
        await asyncio.to_thread(self._start, json.dumps(config))
        self._connection = await self._open()

    async def _open(self) -> DaemonConnection:
        return await self._gateway.open((self._folder / TOKEN_NAME).read_text("ascii"))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _start(self, config: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        self._gateway.start(config)

"""Which replicas answer: each is asked again and again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.errors import CloudMlError

logger = logging.getLogger(__name__)
_MOST_BYTES = 65_536
_LONGEST = 500
"""Characters of what a replica says."""


_REFUSAL = re.compile(r"[^:]* (is ready|can be loaded): (.*)", re.DOTALL)
"""The refusals of ``serving.table.ModelTable.find``: whether further loads are tried, and the
reason.
"""


@dataclass(frozen=True)
class ReplicaAnswer:
    """What a replica said of its model. ``load_failed``: no load is tried again."""

    ready: bool = False
    why: str = ""
    load_failed: bool = False


@dataclass(frozen=True)
class ProbeTimeouts:
    """Seconds between questions to one that does not answer yet and to one that does, and for an
    answer.
    """

    starting_s: float = 0.25
    ready_s: float = 2.0
    answer_s: float = 5.0
    misses: int = 3


class ReadinessProber:
    """Asks the replicas it is told about, and tells when one begins or ceases to answer.

    Belongs to one event loop. ``changed`` is called with the uid of the service.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        changed: Callable[[str], None],
        patience: ProbeTimeouts | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._changed = changed
        self._patience = patience or ProbeTimeouts()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._of: dict[str, str] = {}
        self._ready: set[str] = set()
        self._probed_uids: set[str] = set()
        self._why: dict[str, str] = {}
        self._load_failed: set[str] = set()
        self._news = asyncio.Event()

    def ready(self, uid: str) -> bool:
        """Whether the replica answered when it was last asked."""
        return uid in self._ready

    def why_not(self, uid: str) -> str:
        """Why its model cannot answer, in its own words; empty where it does, or does not say."""
        return self._why.get(uid, "")

    def load_failed(self, uid: str) -> bool:
        """Whether its model server has said that it does not try to load the model again."""
        return uid in self._load_failed

    def known(self, uid: str) -> bool:
        """Whether it was probed at least once."""
        return uid in self._probed_uids

    async def wait_for_first_answers(self, uids: Collection[str], limit_s: float = 1.0) -> None:
        """Wait a moment for the first answers of replicas that are followed.

        To a server that has just started all are unknown, and are not to look as if they did not
        answer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while any(uid in self._tasks and uid not in self._probed_uids for uid in uids):
                    self._news.clear()
                    await self._news.wait()

    def follow(self, service: str, model: str, replicas: Collection[str]) -> None:
        """Ask these replicas of a service, and no others of it."""
        for uid in [uid for uid, of in self._of.items() if of == service and uid not in replicas]:
            self._leave(uid)
        for uid in replicas:
            if uid not in self._tasks:
                self._of[uid] = service
                self._tasks[uid] = asyncio.create_task(self._ask(service, model, uid))

    def close(self) -> None:
        """Ask nobody any more."""
        for uid in list(self._tasks):
            self._leave(uid)

    def _leave(self, uid: str) -> None:
        self._tasks.pop(uid).cancel()
        self._of.pop(uid, None)
        self._ready.discard(uid)
        self._probed_uids.discard(uid)
        self._why.pop(uid, None)
        self._load_failed.discard(uid)

    async def _ask(self, service: str, model: str, uid: str) -> None:
        misses = 0
        while True:
            answer = await self._answers(model, uid)
            well = answer.ready
            if answer.why or well:  # a replica that does not answer keeps the last known reason
                self._note_reason(service, uid, answer)
            misses = 0 if well else misses + 1
            if well and uid not in self._ready:
                self._ready.add(uid)
                self._changed(service)
            # Allow a few misses, so that one slow answer under load does not take the replica out
            # of service.
            elif misses >= self._patience.misses and uid in self._ready:
                self._ready.discard(uid)
                self._changed(service)
            if uid not in self._probed_uids:
                self._probed_uids.add(uid)
                self._news.set()
            await asyncio.sleep(self._patience.ready_s if well else self._patience.starting_s)

    def _note_reason(self, service: str, uid: str, answer: ReplicaAnswer) -> None:
        """Keep why a replica is not ready, and whether its model cannot be loaded."""
        if answer.why != self._why.get(uid, ""):
            self._why[uid] = answer.why
            if answer.why:
                self._changed(service)
        if answer.load_failed != self.load_failed(uid):
            (self._load_failed.add if answer.load_failed else self._load_failed.discard)(uid)
            self._changed(service)

    async def _answers(self, model: str, uid: str) -> ReplicaAnswer:
        """What the replica says: whether its model can answer, and if not, why."""
        # With "Connection: close", the end of the connection ends the answer, so no length has to
        # be parsed.
        request = f"GET /v1/models/{model}/metadata HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n"
        try:
            async with asyncio.timeout(self._patience.answer_s):
                reader, writer = await self._endpoints.open_connection(uid, SOCKET)
                with contextlib.closing(writer):
                    writer.write(request.encode())
                    line, answer = await reader.readline(), b""
                    if line.startswith(b"HTTP/1.1 200 "):
                        return ReplicaAnswer(ready=True)
                    while len(answer) < _MOST_BYTES and (
                        more := await reader.read(_MOST_BYTES - len(answer))
                    ):
                        answer += more
        except (CloudMlError, OSError, TimeoutError, ValueError):
            return ReplicaAnswer()
        except Exception:  # or this replica would never be asked again
            logger.exception("a replica cannot be asked", extra={"uid": uid})
            return ReplicaAnswer()
        return parse_refusal(answer)


def parse_refusal(answer: bytes) -> ReplicaAnswer:
    """What an answer says of why no version is ready. Replicas run what tenants bring: it is
    made fit for a line.
    """
    try:
        message = str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ReplicaAnswer()
    found = _REFUSAL.match(message[:_MOST_BYTES])
    if found is None:
        return ReplicaAnswer()
    line = "".join(char if char.isprintable() else " " for char in found[2])[:_LONGEST]
    return ReplicaAnswer(why=line, load_failed=bool(line) and found[1] == "can be loaded")

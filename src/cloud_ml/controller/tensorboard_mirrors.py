"""Answers TensorBoards that copy the files that they show, since their folders cannot be mounted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from cloud_ml.domain.tensorboards.mirror_requests import LONGEST_REQUEST, ListFiles, parse_request
from cloud_ml.domain.tensorboards.spec import MIRROR_SOCKET, RunSource, TensorBoardRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.errors import CloudMlError, Unavailable
from cloud_ml.observability.metrics import Counter, Metrics
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.tensorboards.source_files import SourceFiles

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 60.0
"""Between two connections; twice as long after each that failed."""
_TAKES_S = 30.0
"""A TensorBoard that takes longer for an answer has its connection closed."""
logger = logging.getLogger(__name__)


class TensorBoardMirrors:
    """Keeps a connection to each TensorBoard that runs and copies. Belongs to one event loop.

    A TensorBoard asks while somebody looks at it; then the store is read for it, and never else.

    Args:
        endpoints: Connects to TensorBoards.
        files: Has the answers.
        offload: Runs what blocks.
        metrics: Counts requests.
    """

    def __init__(
        self, endpoints: Endpoints, files: SourceFiles, offload: Offload, metrics: Metrics
    ) -> None:
        self._endpoints = endpoints
        self._files = files
        self._offload = offload
        self._running: dict[str, TensorBoardRecord] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._requests = Counter(
            "cloudml_tensorboard_mirror_requests_total",
            "Requests of TensorBoards that copy the files that they show.",
            ("what",),
        )
        metrics.add([self._requests])

    def show(self, record: TensorBoardRecord) -> None:
        """Answer a TensorBoard, as long as it runs."""
        runs = (
            record.status.phase is Phase.RUNNING
            and record.spec.workload.desired is Desired.RUN
            and record.delete_requested_at is None
        )
        if not runs:
            self.drop(record.key.uid)
        elif record.key.uid not in self._running:
            self._running[record.key.uid] = record
            self._changed.set()

    def drop(self, uid: str) -> None:
        """It runs no more."""
        if self._running.pop(uid, None) is not None:
            self._changed.set()

    async def run(self) -> None:
        """Answer them all. Never returns."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for uid in self._tasks.keys() - self._running.keys():
                    self._tasks.pop(uid).cancel()
                for uid in self._running.keys() - self._tasks.keys():
                    self._tasks[uid] = asyncio.create_task(self._answer(self._running[uid]))
        finally:
            ended = list(self._tasks.values())
            self._tasks.clear()
            self._running.clear()
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    async def _answer(self, record: TensorBoardRecord) -> None:
        """Answer one TensorBoard. Never returns."""
        uid, org, sources = record.key.uid, record.key.org, record.spec.sources
        pause, last = _FIRST_PAUSE_S, ""
        while True:
            reason = await self._answer_on_connection(uid, org, sources)
            if reason not in ("", last):
                extra = {"uid": uid, "error": reason}
                logger.info("a TensorBoard is answered on another connection", extra=extra)
            # It has only begun, has not been started to copy, or is no TensorBoard any more.
            pause, last = min(2 * pause, _LONGEST_PAUSE_S) if reason else _FIRST_PAUSE_S, reason
            await asyncio.sleep(pause)

    async def _answer_on_connection(self, uid: str, org: str, sources: Sequence[RunSource]) -> str:
        """Until the connection ends. Returns why; empty if the TensorBoard has ended it, after an
        answer at least.
        """
        try:
            reader, writer = await self._endpoints.open_connection(
                uid, MIRROR_SOCKET, limit=LONGEST_REQUEST
            )
        except Unavailable:
            return "it does not listen"
        try:
            answers = await self._answer_all(org, sources, reader, writer)
        except (CloudMlError, OSError, ValueError) as error:
            return str(error)
        except Exception:
            logger.exception("a TensorBoard cannot be answered", extra={"uid": uid})
            return "an error of the server"
        finally:
            # ``close`` waits until its peer has read everything, which one that harms us never does.
            writer.transport.abort()
        return "" if answers else "it asks for nothing"

    async def _answer_all(
        self,
        org: str,
        sources: Sequence[RunSource],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> int:
        """Until the connection ends. Returns how many requests were answered.

        Raises:
            CloudMlError: A request is none, or a store does not answer.
            OSError: The connection is cut, or the TensorBoard takes nothing.
            ValueError: A line is too long.
        """
        answers = 0
        while line := await reader.readline():
            begin = time.monotonic()
            request = parse_request(line, len(sources))
            self._requests.add("list" if isinstance(request, ListFiles) else "read")
            writer.write(await self._offload.long(org, self._files.answer, org, sources, request))
            async with asyncio.timeout(_TAKES_S):
                await writer.drain()
            answers += 1
            # One that asks without end has half of the time of a thread, at most.
            await asyncio.sleep(time.monotonic() - begin)
        return answers

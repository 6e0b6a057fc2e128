"""TensorBoards: on folders, on jobs and on studies, opened in a browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.jobs.follow import Written, follow_log
from cloud_ml.aio.resources import AsyncResources
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models.tracking.tensorboard import (
    TENSORBOARDS,
    NewTensorBoard,
    OpenedTensorBoard,
    TensorBoard,
)
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, json_request, segment
from cloud_ml.sdk.timeouts import LONG_POLL_S, QUIET_LOG_S


class AsyncTensorBoards(AsyncResources[NewTensorBoard, TensorBoard]):
    """The TensorBoards of the caller's organisation: ``open`` and ``logs`` beside what all
    resources have.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport, TENSORBOARDS)

    async def open(self, name: str) -> OpenedTensorBoard:
        """A URL that opens a TensorBoard in a browser, once and within a minute.

        Raises:
            Unavailable: The server cannot offer applications to browsers now.
        """
        request = json_request("POST", f"{TENSORBOARDS.path}/{segment(name)}/open", None)
        return await self._transport.ask(OpenedTensorBoard, request)

    async def logs(
        self, name: str, *, follow: bool = False, lines: int | None = None
    ) -> AsyncGenerator[bytes]:
        """The output of a TensorBoard in chunks, as it was written.

        Args:
            name: Its name.
            follow: Go on until it is gone, across cut connections.
            lines: Only the last so many lines of what there is now.
        """
        source = TensorBoardLog(self._transport, self, name)
        if follow:
            async with aclosing(follow_log(source, lines=lines)) as followed:
                async for chunk in followed:
                    yield chunk
            return
        async with await source.open(follow=False, lines=lines) as chunks:
            async for chunk in chunks:
                yield chunk


class TensorBoardLog:
    """The ``LogSource`` of a TensorBoard."""

    def __init__(self, transport: AsyncTransport, boards: AsyncTensorBoards, name: str) -> None:
        self._transport = transport
        self._boards = boards
        self._name = name

    async def open(self, *, follow: bool, offset: int = 0, lines: int | None = None) -> AsyncAnswer:
        """The output without its first ``offset`` bytes."""
        query = {"lines": lines, "follow": follow, "offset": offset or None}
        request = Request(
            "GET",
            f"{TENSORBOARDS.path}/{segment(self._name)}/logs",
            query=query,
            headers={"Accept": "text/plain, application/json"},
            read_timeout_s=QUIET_LOG_S if follow else READ_TIMEOUT_S,
        )
        return await self._transport.send(request)

    async def job(self, newer_than: int | None = None) -> Written:
        """How the TensorBoard stands."""
        board = await self._boards.describe(self._name, newer_than=newer_than, wait_s=LONG_POLL_S)
        return Written(board.revision, board.phase, finished=board.phase in TENSORBOARDS.failed)

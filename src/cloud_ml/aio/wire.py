"""The bytes of one connection, in both directions."""

from __future__ import annotations

import asyncio
import contextlib

from cloud_ml.sdk.sockets import KEEPALIVE, went_stale

_MOST_UNREAD_BYTES = 256 * 1024
"""Beyond this the other side is not read from until somebody takes what is there."""


class Wire(asyncio.Protocol):
    """One connection. What has arrived stays readable when the connection is lost behind it.

    So an answer that a server sends before it hangs up on a body that it does not want is not lost;
    ``asyncio``'s own streams would tell of the broken connection only.

    Attributes:
        arrived: What has been received and not been read.
    """

    def __init__(self) -> None:
        self.arrived = bytearray()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._error: Exception | None = None
        self._held = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._full = False

    # ── what the event loop calls ─────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        for option in KEEPALIVE:
            sock.setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        self.arrived += data
        if len(self.arrived) > _MOST_UNREAD_BYTES and self._transport is not None:
            self._held = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._over = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over, self._error, self._transport = True, exc, None
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)

    # ── what we call ──────────────────────────────────────────────────────────────────────────

    def within(self, timeout_s: float) -> asyncio.Timeout:
        """The block must be done within ``timeout_s``; then it raises ``TimeoutError``."""
        return asyncio.timeout(timeout_s)

    async def more(self) -> bool:
        """Wait for bytes; ``False`` when none will come.

        Raises:
            OSError: The connection broke, and all that had arrived is read.
        """
        before = len(self.arrived)
        while len(self.arrived) == before:
            if self._over:
                if self._error is not None and not before:
                    raise (
                        self._error
                        if isinstance(self._error, OSError)
                        else ConnectionResetError(str(self._error))
                    )
                return False
            self._reader = self._loop.create_future()
            await self._reader
        return True

    async def receive(self, most: int) -> bytes:
        """Up to so many bytes, as soon as there are any; empty when none will come. Raises as
        ``more``.
        """
        if not self.arrived and not await self.more():
            return b""
        return self.take(most)

    def take(self, most: int) -> bytes:
        """Up to so many of the bytes that have arrived."""
        taken = bytes(memoryview(self.arrived)[:most])
        del self.arrived[: len(taken)]
        # At half of the bound, not just below it: otherwise reading is stopped and begun again with
        # each block.
        if self._held and len(self.arrived) <= _MOST_UNREAD_BYTES // 2:
            self._held = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return taken

    async def write(self, data: bytes | memoryview) -> None:
        """Hand over bytes, and wait while too many are on their way.

        Raises:
            ConnectionResetError: The connection is gone.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        while self._full and not self._over:
            self._writer = self._loop.create_future()
            await self._writer
        if self._error is not None:
            raise ConnectionResetError("the connection broke while it was written to")

    @property
    def usable(self) -> bool:
        """Whether an idle connection can serve another request, in the event loop that runs now."""
        if (
            self._loop is not asyncio.get_running_loop()
            or self._over
            or self.arrived
            or self._transport is None
        ):
            return False
        # What has come since the loop looked last has not been told to us.
        return not self._transport.is_closing() and not went_stale(
            self._transport.get_extra_info("socket")
        )

    def close(self) -> None:
        """Hang up at once. May be called again, from a cancelled task, or when the loop is over."""
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                # asyncio's ``close`` would first write what is buffered, as long as the other side
                # takes for it.
                self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)

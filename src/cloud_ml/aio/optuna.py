"""Calls of Optuna's storage service, which ``cloudml hp proxy`` passes on."""

from __future__ import annotations

import random

from cloud_ml.aio.clock import sleep as pause
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.errors import TransportError, TryAgain
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.timeouts import PATIENCE

_TYPE = {"Content-Type": "application/x-protobuf"}


class AsyncOptunaCalls:
    """Passes messages on to the server, and brings back what it answers.

    Args:
        transport: Signs and sends them.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def call(self, method: str, message: bytes, key: str) -> bytes:
        """The answer to a message. It is tried again for two minutes, in which a server may start
        again; the ``key`` says that it is the same call.

        Raises:
            CloudMlError: The server's refusal, or there is none.
        """
        path = f"/api/v1/optuna/{segment(method)}"
        request = Request(
            "POST", path, body=message, headers=_TYPE, idempotency_key=key, same_twice=True
        )
        failures = 0
        while True:
            try:
                async with await self._transport.send(request) as answer:
                    return await answer.read()
            except (TransportError, TryAgain):
                failures += 1
                if failures >= PATIENCE.attempts:
                    raise
                await pause(PATIENCE.backoff(failures, random.random()))  # noqa: S311 - guards nothing

"""Server-sent events as a client reads them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from support.asgi import Exchange


async def events(exchange: Exchange) -> AsyncIterator[tuple[str, int | None, Any]]:
    """Kind, id and data of each event; comments are kind ``:``."""
    assert exchange.headers["content-type"].startswith("text/event-stream")
    text = ""
    async for chunk in exchange.chunks():
        text += chunk.decode()
        *blocks, text = text.split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                yield (
                    fields["event"],
                    int(fields["id"]) if "id" in fields else None,
                    json.loads(fields["data"]),
                )
            elif block.startswith(":"):
                yield ":", None, None

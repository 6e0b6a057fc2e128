"""Server-sent events: how one stands on the wire, and where a stream is taken up again."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Header, Query

from cloud_ml.models import codec, common

_MOST = 2**62
NOTHING_NEW = b": nothing new\n\n"
"""Says that the server is still there."""
AGAIN = b"retry: 1000\n"
"""Makes proxies and clients see that the stream is open, and says when to ask again after a cut,
in milliseconds.
"""


def message(kind: str, number: int, value: object) -> bytes:
    """An event of that kind, with a value of ours as its data."""
    document: Any = json.dumps(codec.encode(value), separators=(",", ":"))
    return f"id: {number}\nevent: {kind}\ndata: {document}\n\n".encode()


async def _place(
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    after: Annotated[int | None, Query(ge=0, lt=_MOST)] = None,
) -> int | None:
    """Where a stream begins: behind the last event that the caller has, else behind ``after``.

    Raises:
        InvalidRequest: That is no number of an event.
    """
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) < _MOST):
            raise common.refuse("Last-Event-ID", last_event_id, "the id of an event of this stream")
        return int(last_event_id)
    return after


Start = Annotated[int | None, Depends(_place)]
"""Where a stream begins, from a request's header or query; none: at the present."""

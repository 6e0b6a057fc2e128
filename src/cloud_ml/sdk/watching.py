"""The stream of changes, across cut connections and restarts of the server: server-sent events."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cloud_ml.errors import TransportError, TryAgain
from cloud_ml.models import codec
from cloud_ml.models.job import JobChange
from cloud_ml.sdk.follow import PATIENCE
from cloud_ml.sdk.retries import RetryPolicy

QUIET_WATCH_S = 90.0
"""How long a stream may be silent before the connection is made anew; the server says something every 15 s."""

Open = Callable[[int | None], AbstractContextManager[Iterable[bytes]]]
"""Opens the stream behind an event, or where it begins."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    id: int | None
    kind: str
    data: str


def follow_changes(
    open_stream: Open,
    *,
    after: int | None = None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[JobChange]:
    """Yield change after change, for as long as the caller wants.

    Args:
        open_stream: Asks the server.
        after: Begin behind this revision.
        patience: How many times in a row the server may fail before its error is handed on.
        sleep: Waits between tries.

    Raises:
        CloudMlError: The server refuses, or has failed too often without anything new in between.
    """
    failures = 0
    while True:
        try:
            with open_stream(after) as chunks:
                for event in read_events(chunks):
                    failures = 0
                    if event.kind in ("job", "gone"):
                        yield codec.decode(JobChange, json.loads(event.data), ignore_unknown=True)
                    # Kept only now: who is cut off while the caller works on an event gets the next one.
                    after = after if event.id is None else event.id
        except (TransportError, TryAgain):
            failures += 1
            if failures >= patience.attempts:
                raise
            sleep(patience.backoff(failures, random.random()))  # noqa: S311 - spreads retries, guards nothing


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The events in a stream of bytes; comments and whatever is cut off at the end are left out."""
    fields: dict[str, list[str]] = {}
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                name, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))
            else:
                if "data" in fields:
                    number = fields.get("id", [""])[-1]
                    kind = fields.get("event", ["message"])[-1]
                    yield ServerEvent(int(number) if number.isdigit() else None, kind, "\n".join(fields["data"]))
                fields = {}

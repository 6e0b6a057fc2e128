"""Callers of a model service: over gRPC and HTTP, once or without a pause."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc

from cloud_ml.auth.tokens import make_token
from support.serving import predict, predict_request


def token_of(keys: dict[str, str], lasts_s: float = 600.0) -> str:
    """A token of a key, as ``credentials.json`` holds one."""
    return make_token(
        keys["access_key"], keys["secret_key"], datetime.now(UTC) + timedelta(seconds=lasts_s)
    )


def over_grpc(channel: grpc.Channel, token: str | None, **options: Any) -> list[float]:
    """Predict for 1 and 2."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    return predict(channel, predict_request(x=[1.0, 2.0]), metadata=metadata, **options)["y"]


def over_http(connection: http.client.HTTPConnection, token: str | None) -> tuple[int, Any]:
    """The same; the status and the document."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request(
        "POST", "/v1/models/linear:predict", json.dumps({"instances": [1.0, 2.0]}), headers
    )
    answer = connection.getresponse()
    return answer.status, json.load(answer)


@dataclass
class Load:
    """What callers saw: how many answers, the longest wait, and everything that was not right."""

    answers: dict[str, int] = field(default_factory=lambda: {"grpc": 0, "http": 0})
    slowest_s: float = 0.0
    failed: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def note(self, kind: str, call: Callable[[], list[float]]) -> None:
        began = time.monotonic()
        try:
            found = call()
        except Exception as error:
            self.failed.append(f"{kind}: {error!r}"[:500])
        else:
            self.answers[kind] += 1
            if found not in ([12.0, 14.0], [7.0, 9.0]):
                self.failed.append(f"{kind}: {found}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    @property
    def total(self) -> int:
        return sum(self.answers.values())


@contextlib.contextmanager
def calling(
    address: str,
    token: str | None,
    callers: int = 4,
    pause_s: float = 0.002,
    *,
    keep_alive: bool = True,
) -> Iterator[Load]:
    """Callers that call without end while the block runs; half over gRPC, half over HTTP.

    Without ``keep_alive``, each call over HTTP has a connection of its own.
    """
    load = Load()

    def grpc_caller() -> None:
        with grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            while not load.over.is_set():
                load.note("grpc", lambda: over_grpc(channel, token))
                time.sleep(pause_s)

    def http_caller() -> None:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=30)) as connection:
            while not load.over.is_set():
                load.note("http", lambda: over_http(connection, token)[1]["predictions"])
                if not keep_alive:
                    connection.close()
                time.sleep(pause_s)

    threads = [
        threading.Thread(target=(grpc_caller, http_caller)[number % 2]) for number in range(callers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join()

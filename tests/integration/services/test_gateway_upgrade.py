"""A gateway takes over from one of an earlier version, before any server tells it anything."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from cloud_ml.gateway.config import SOCKET_NAME, TOKEN_NAME
from support.gateway_process import GatewayProcess, honest_replica
from support.replica_sockets import replica_folder

pytestmark = pytest.mark.timeout(120)
BODY = b'{"instances": [1]}'
WAITING_S = 0.1


class Predecessor:
    """A gateway that hands over what it listens at, and a route in the form of its version.

    Args:
        folder: The folder of the gateway.
        backend: The one replica of the route.
    """

    def __init__(self, folder: Path, backend: dict[str, Any]) -> None:
        (folder / TOKEN_NAME).write_text("token")
        self._line = socket.socket(socket.AF_UNIX)
        self._line.bind(str(folder / SOCKET_NAME))
        self._line.listen()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        route = {"port": self.port, "org": "mine", "name": "m/v1", "open": True}
        route |= {"wanted": True, "backends": [backend]}
        self._known = {"routes": {"m": route}, "drop": [], "keep": None, "keys": None}
        self.operations: list[str] = []
        self._thread = threading.Thread(target=self._hand_over)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listening.close()
        self._line.close()

    def _hand_over(self) -> None:
        successor, _ = self._line.accept()
        with successor, successor.makefile("rb") as requests:
            for line in requests:
                self.operations += json.loads(line).keys() - {"token"}
                if self.operations[-1] == "hand_over":
                    self._say(successor, {"sockets": [self.port], "known": self._known})
                    socket.send_fds(successor, [b"+"], [self._listening.fileno()])
                else:
                    self._say(successor, {})

    def _say(self, successor: socket.socket, answer: dict[str, Any]) -> None:
        successor.sendall(json.dumps({"ok": True, **answer}).encode() + b"\n")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    try:
        yield made
    finally:
        shutil.rmtree(made)


def call(port: int) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/models/m:predict", BODY)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_replicas_that_an_earlier_gateway_knew_by_their_folders_are_called(folder: Path) -> None:
    work = replica_folder(folder, "a1")
    backend = {"uid": "a1", "folder": str(work), "weight": 1.0, "release": 3}
    with (
        honest_replica(work),
        Predecessor(folder, backend) as before,
        GatewayProcess(folder) as gateway,
    ):
        assert call(before.port) == (200, BODY)
        assert list(gateway.figures("m")["backends"]) == ["a1"]
    assert before.operations == ["hand_over", "retire"]


def test_a_folder_that_an_earlier_gateway_names_opens_nothing_else(folder: Path) -> None:
    """The uid decides: the path in the message is not believed."""
    backend = {"uid": "a2", "folder": str(replica_folder(folder, "a1")), "weight": 1.0}
    with (
        honest_replica(replica_folder(folder, "a1")),
        Predecessor(folder, backend) as before,
        GatewayProcess(folder, waiting_s=WAITING_S),
    ):
        assert call(before.port)[0] == 503


def test_a_gateway_starts_where_its_predecessor_is_not_understood(folder: Path) -> None:
    """As one of an earlier version does that follows a later one: the server tells it the rest."""
    backend = {"uid": "a1", "address": {"satellite": 7}}
    with Predecessor(folder, backend) as before, GatewayProcess(folder) as gateway:
        assert gateway.ask({"figures": True})["figures"] == {}
        assert "cannot be read" in gateway.log()
    assert before.operations == ["hand_over", "retire"]

"""Connections that clients keep, to services that end and come again: a real gateway, and real
clients.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import select
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated

from cloud_ml.domain.services.routes import SOCKET, Route
from support.gateway_process import GatewayProcess, free_port, honest_replica
from support.replica_sockets import backend, replica_folder

HONEST = "honest"
pytestmark = pytest.mark.timeout(300)


class Scene:
    """A gateway, and a replica that each service reaches by a socket of its own."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self.gateway = gateway
        self._folder = folder

    def serve(self, uid: str, port: int, drop: str = "") -> None:
        """Have a service on a port, in place of another one."""
        if drop:
            self._socket(drop).unlink()
            self.gateway.tell({}, drop=(drop,))
        with contextlib.suppress(FileExistsError):
            self._socket(uid).hardlink_to(self._socket(HONEST))
        backends = (backend(f"r-{uid}"),)
        self.gateway.tell({uid: Route(port, "mine", f"{uid}/v1", open=True, backends=backends)})

    def _socket(self, uid: str) -> Path:
        return replica_folder(self._folder, f"r-{uid}") / SOCKET


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    try:
        with (
            honest_replica(replica_folder(folder, f"r-{HONEST}")),
            GatewayProcess(folder, waiting_s=1.0) as gateway,
        ):
            yield Scene(gateway, folder)
    finally:
        shutil.rmtree(folder)


def ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    connection.request("POST", "/v1/models/m:predict", b'{"instances": [1]}')
    answer = connection.getresponse()
    return answer.status, answer.read()


def ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side closes the connection within a moment, without a word."""
    assert connection.sock is not None
    ready, _, _ = select.select([connection.sock], [], [], 10)
    return bool(ready) and connection.sock.recv(1) == b""


@pytest.mark.parametrize(
    "moved", [False, True], ids=["deleted and made again", "moved to another port"]
)
def test_a_kept_connection_over_http(scene: Scene, moved: bool) -> None:
    """An idle connection to what ends is closed, as a client expects of idle ones; it connects
    again and is served.
    """
    port, name = free_port(), f"http-{moved}"
    scene.serve(name, port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        assert ask(connection) == (200, b'{"instances": [1]}')
        if moved:
            scene.serve(name, free_port())
            scene.serve("the-next-one", port)
        else:
            scene.serve(f"{name}-again", port, drop=name)
        assert ended(connection)
        connection.close()
        assert ask(connection) == (200, b'{"instances": [1]}')
    finally:
        connection.close()
        scene.gateway.tell({}, drop=(name, f"{name}-again", "the next one"))


def test_a_kept_channel_over_grpc(scene: Scene) -> None:
    """A channel is told to connect again (GOAWAY), and the next call on it is served."""
    port = free_port()
    scene.serve("grpc", port)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.B/C")
        message = b"hello"
        assert call(message, timeout=60) == message
        names = ["grpc", "grpc-2", "grpc-3", "grpc-4"]
        for before, after in itertools.pairwise(names):
            scene.serve(after, port, drop=before)
            assert call(message, timeout=60, wait_for_ready=True) == message


def test_a_call_under_way_is_answered_when_its_service_ends(scene: Scene) -> None:
    port = free_port()
    nowhere = backend("nowhere")
    scene.gateway.tell({"ends": Route(port, "mine", "ends/v1", open=True, backends=(nowhere,))})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/v1/models/m")
        while not scene.gateway.figures("ends")["waiting"]:
            pass
        scene.gateway.tell({}, drop=("ends",))
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (503, "close")
        answer.read()
    finally:
        connection.close()


def test_a_call_on_its_way_to_who_ends_meets_goaway_and_no_reset(scene: Scene) -> None:
    """A client that has read GOAWAY knows that the call was not served, and makes it again. Of a
    reset it cannot tell.
    """
    port = free_port()
    scene.serve("leaving", port)
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    call = [(":method", "POST"), (":path", "/a.B/C"), (":scheme", "http"), (":authority", "x")]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(client.data_to_send())
        assert connection.recv(65_536)  # its settings
        scene.serve("the-next", port, drop="leaving")
        for stream in (1, 3):  # had the first one met a closed socket, the second could not be sent
            client.send_headers(stream, call)
            connection.sendall(client.data_to_send())
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    events = client.receive_data(received)
    assert [one.last_stream_id for one in events if isinstance(one, ConnectionTerminated)] == [0]

"""``cloudml hp proxy``: whom it serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cloud_ml.net.client.unary_call import UnaryCall
from support.optuna_client import proxy
from support.server import RealServer, serving

ASK = """
import os, socket, sys
connection = socket.socket()
connection.settimeout(10)
if len(sys.argv) > 3:
    os.setuid(int(sys.argv[3]))
    connection = socket.socket()  # a socket belongs to who has made it
    connection.settimeout(10)
connection.connect(("127.0.0.1", int(sys.argv[1])))
answer = b""
try:
    connection.sendall(bytes.fromhex(sys.argv[2]))
    while b"grpc-status" not in answer and (piece := connection.recv(65536)):
        answer += piece
except (BrokenPipeError, ConnectionResetError):
    pass
print(answer.hex())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


def answer_to(port: int, user: int | None = None) -> bytes:
    """The bytes with which a call for all studies is answered, made by a process of that user."""
    fields = [(":method", "POST"), (":scheme", "http"), ("content-type", "application/grpc")]
    fields.insert(2, (":path", "/optuna.StorageService/GetAllStudies"))
    begun = UnaryCall(fields, bytes(5), most_bytes=1000).begin()
    ran = subprocess.run(  # noqa: PLW1510 - who asks looks
        [
            sys.executable,
            "-I",
            "-c",
            ASK,
            str(port),
            begun.hex(),
            *([] if user is None else [str(user)]),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return bytes.fromhex(ran.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_processes_of_other_users_are_refused(server: RealServer) -> None:
    with proxy(server) as port:
        assert b"grpc-status" in answer_to(port)
        assert answer_to(port, user=65534) == b""
        assert b"grpc-status" in answer_to(port)


def test_without_a_key_it_does_not_start(server: RealServer) -> None:
    ran = server.cli("hp", "proxy", home=server.folder / "nobody")
    assert ran.code != 0
    assert "storage =" not in ran.out
    wrong = server.cli("hp", "proxy", CLOUDML_SECRET_KEY="wrong")
    assert wrong.code != 0
    assert "storage =" not in wrong.out


def test_a_port_that_is_taken_is_named(server: RealServer) -> None:
    with proxy(server) as port:
        ran = server.cli("hp", "proxy", "--port", str(port))
    assert ran.code != 0
    assert f"port {port} cannot be taken" in ran.err

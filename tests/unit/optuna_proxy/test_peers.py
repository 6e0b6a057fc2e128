"""Whose connection it is, by the tables of the kernel."""

from __future__ import annotations

import os
import socket

import pytest

from cloud_ml.optuna_proxy.peers import find_peers, open_sockets, peers_of

HERE, PEER = ("127.0.0.1", 80), ("127.0.0.1", 8080)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
LINE = "  0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {user} 0 {inode} 1"


def line(**changed: str) -> str:
    fields = {
        "local": "0100007F:1F90",
        "remote": "0100007F:0050",
        "state": "01",
        "user": "1000",
        "inode": "9",
    }
    return LINE.format(**fields | changed)


@pytest.mark.parametrize(
    ("lines", "owner"),
    [
        ([HEAD, line()], 1000),
        ([HEAD, line(user="0")], 0),
        ([HEAD], None),
        ([line(state="06", user="0")], None),  # TIME_WAIT: the kernel tells 0 for everybody
        ([line(state="03", user="0")], None),
        ([line(local="0100007F:0050", remote="0100007F:1F90")], None),  # our own end
        ([line(user="-1")], None),
        ([line(inode="x")], None),
        ([line()[:40]], None),
        ([line(local="0200007F:1F90"), line(user="7")], 7),
        (
            [
                line(
                    local="0000000000000000FFFF00000100007F:1F90",
                    remote="0000000000000000FFFF00000100007F:0050",
                    user="8",
                )
            ],
            8,
        ),
    ],
)
def test_the_line_of_the_peer_tells(lines: list[str], owner: int | None) -> None:
    (found,) = find_peers(lines, [(PEER, HERE)])
    assert (None if found is None else found.user) == owner


def test_many_connections_are_looked_up_in_one_reading() -> None:
    lines = iter([line(local=f"0100007F:{port:04X}", inode=str(port)) for port in range(1, 50)])
    connections = [(("127.0.0.1", port), HERE) for port in (7, 99, 3)]
    found = find_peers(lines, connections)
    assert [None if one is None else one.inode for one in found] == [7, None, 3]


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_connection_of_this_process_is_its_users(family: int, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as client:
            accepted, peer = listener.accept()
            with accepted:
                here = accepted.getsockname()[:2]
                found, missing = peers_of([(peer[:2], here), ((host, 1), here)])
                assert found is not None
                assert missing is None
                assert found.user == os.geteuid()
                assert found.inode == os.fstat(client.fileno()).st_ino
                assert open_sockets({found.inode, 1}) == {found.inode}
            assert client.recv(1) == b""
        assert open_sockets({found.inode}) == set()

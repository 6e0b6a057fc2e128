"""Whose connection it is, by the tables of the kernel."""

from __future__ import annotations

import os
import socket

import pytest

from cloud_ml.optuna_proxy.peers import find_owner, owner_of

HERE, PEER = ("127.0.0.1", 80), ("127.0.0.1", 8080)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
LINE = "  0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {user} 0 1 1"


def line(**changed: str) -> str:
    told = {"local": "0100007F:1F90", "remote": "0100007F:0050", "state": "01", "user": "1000"}
    return LINE.format(**told | changed)


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
    assert find_owner(lines, PEER, HERE) == owner


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
                assert owner_of(peer[:2], accepted.getsockname()[:2]) == os.geteuid()
                assert owner_of((host, 1), accepted.getsockname()[:2]) is None
            assert client.recv(1) == b""

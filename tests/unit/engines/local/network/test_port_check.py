"""Whether somebody has a port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cloud_ml.engines.local.network.port_check import TakenPort, taken_port
from support.left_connections import left_connection


@pytest.fixture
def free() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, ""),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::"),
    ],
)
def test_a_port_on_which_somebody_listens_is_taken(
    family: socket.AddressFamily, address: str, free: int
) -> None:
    assert taken_port([free], None) is None
    try:
        listener = socket.create_server((address, free), family=family)
    except OSError as error:
        pytest.skip(f"{address} cannot be had here: {error}")
    with listener:
        assert taken_port([free], None) == TakenPort(free, closing=False)
    assert taken_port([free], None) is None


def test_connections_that_have_ended_take_no_port(free: int) -> None:
    with socket.create_server(("127.0.0.1", free)) as listener:
        ours = socket.create_connection(("127.0.0.1", free))
        theirs, _ = listener.accept()
        theirs.close()  # the side that closes first keeps the port for a minute
        ours.close()
    assert taken_port([free], None) is None


def test_connections_of_nobody_are_told_from_a_process_that_has_the_port(free: int) -> None:
    connection = left_connection(free)
    closing = taken_port([free], None)
    assert closing == TakenPort(free, closing=True)
    assert closing.why == "still has connections of a process that has ended"
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        in_use = taken_port([free, port], None)
        assert in_use == TakenPort(port, closing=False), "whoever waits would wait in vain"
    connection.close()
    assert taken_port([free], None) is None


def test_a_port_that_is_only_bound_is_in_use(free: int) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", free))
        assert taken_port([free], None) == TakenPort(free, closing=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters a network")
def test_another_network_is_entered_and_left(free: int) -> None:
    folder = os.open("/proc/self/ns", os.O_PATH | os.O_DIRECTORY)
    before = Path("/proc/self/ns/net").readlink()
    try:
        with socket.create_server(("", free)):
            assert taken_port([free], (folder, "net")) == TakenPort(free, closing=False)
        assert taken_port([free], (folder, "net")) is None
        with pytest.raises(FileNotFoundError):
            taken_port([free], (folder, "none"))
        with pytest.raises(OSError, match="Invalid argument"):
            taken_port([free], (folder, "uts"))
    finally:
        os.close(folder)
    assert Path("/proc/self/ns/net").readlink() == before

"""What a sandbox sends as the socket on which its task calls: taken only if it is one."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.network.listener_store import (
    ListenerStore,
    OfferName,
    receive_listener,
)


def listening(address: str = "127.0.0.1", backlog: int = 1) -> socket.socket:
    made = socket.socket()
    made.bind((address, 0))
    if backlog:
        made.listen(backlog)
    return made


def port_of(made: socket.socket) -> int:
    return int(made.getsockname()[1])


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    with receiver, sender:
        yield receiver, sender


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_listener_is_taken(ends: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = ends
    with pytest.raises(BlockingIOError):
        receive_listener(receiver, 1)
    with listening() as made:
        socket.send_fds(sender, [b"x"], [made.fileno()])
        taken = receive_listener(receiver, port_of(made))
        assert taken is not None
        with taken:
            assert taken.getsockname() == made.getsockname()
            assert not taken.getblocking()
            assert not taken.get_inheritable()
    sender.close()
    assert receive_listener(receiver, 1) is None


def test_nothing_else_is(ends: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = ends
    with (
        listening(backlog=0) as silent,
        listening("0.0.0.0") as everywhere,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        unix.bind("")
        unix.listen()
        datagrams.bind(("127.0.0.1", 0))
        for made in (silent, everywhere, datagrams, unix):
            port = 1 if made is unix else port_of(made)
            socket.send_fds(sender, [b"x"], [made.fileno()])
            with pytest.raises(ValueError, match="does not listen on port"):
                receive_listener(receiver, port)
    with listening() as other:
        socket.send_fds(sender, [b"x"], [other.fileno()])
        with pytest.raises(ValueError, match="does not listen on port 1 "):
            receive_listener(receiver, 1)
    reading, writing = os.pipe()
    socket.send_fds(sender, [b"x"], [reading])
    for end in (reading, writing):
        os.close(end)
    with pytest.raises(OSError, match="socket"):
        receive_listener(receiver, 1)
    sender.sendall(b"x")
    with pytest.raises(ValueError, match="no socket was sent"):
        receive_listener(receiver, 1)


def test_of_many_descriptors_none_stays(ends: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = ends
    with listening() as made:
        socket.send_fds(sender, [b"x"], [made.fileno()] * 100)
        taken = receive_listener(receiver, port_of(made))
        assert taken is not None
        taken.close()


def test_what_is_wrong_is_told_and_the_job_goes_on(tmp_path: Path) -> None:
    messages: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        store = ListenerStore(selector, tmp_path, "1.uid.1", 1, messages.append)
        receiver, sender = socket.socketpair()
        store.expect("worker-0", receiver.detach())
        with sender, listening() as made:
            socket.send_fds(sender, [b"x"], [made.fileno()])
            for key, _ in selector.select(1):
                handle, argument = key.data
                handle(argument)
            assert sender.recv(1) == b""
        store.close()
    assert [line.partition(b": ")[0] for line in messages] == [b"cloudml"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("7.abc.2.1", OfferName(7, "abc")),
        ("7.a.b.2.1", OfferName(7, "a.b")),
        (".7.abc.2.1", None),
        ("7.abc.2", None),
        ("x.abc.2.1", None),
        ("7.abc.2.x", None),
        ("7..2.1", None),
        ("", None),
    ],
)
def test_names_of_offers(name: str, found: OfferName | None) -> None:
    assert OfferName.parse(name) == found

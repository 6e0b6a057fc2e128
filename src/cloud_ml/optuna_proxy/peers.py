"""Whose process is at the other end of a TCP connection of this machine.

The kernel tells it in ``/proc/net/tcp`` and ``tcp6``, one connection a line: its own address, the
other one, its state, the user id of who made it, and the number of its socket.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_PROCESSES = "/proc"
_ESTABLISHED = "01"
"""In other states, the kernel may tell 0 in place of the user."""
_LOCAL, _REMOTE, _STATE, _USER, _INODE = 1, 2, 3, 7, 9
_LONGEST_NUMBER = 20

Address = tuple[str, int]


class NoConnectionTable(Exception):
    """The machine does not tell whose connections are whose."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end: the user id of who made it, and the number of its socket."""

    user: int
    inode: int


def check_table() -> None:
    """Raise ``NoConnectionTable`` unless this machine tells whose connections are whose."""
    if not _TABLES[0].is_file():
        raise NoConnectionTable(f"{_TABLES[0]} does not exist")


def peers_of(connections: Sequence[tuple[Address, Address]]) -> list[Peer | None]:
    """The other ends of connections, each from a peer's address to one of ours; ``None`` if unknown.

    The tables are read once, however many are asked for.
    """
    return find_peers(_lines(), connections)


def find_peers(
    lines: Iterable[str], connections: Sequence[tuple[Address, Address]]
) -> list[Peer | None]:
    """The same from the lines of the tables. Lines of another form are left out."""
    numbers = {
        (_encode(peer, long), _encode(here, long)): number
        for number, (peer, here) in enumerate(connections)
        for long in (False, True)
    }
    found: list[Peer | None] = [None] * len(connections)
    for line in lines:
        words = line.split()
        if len(words) <= _INODE or words[_STATE] != _ESTABLISHED:
            continue
        number = numbers.get((words[_LOCAL], words[_REMOTE]))
        if number is not None and _is_number(words[_USER]) and _is_number(words[_INODE]):
            found[number] = Peer(int(words[_USER]), int(words[_INODE]))
    return found


def open_sockets(inodes: Collection[int]) -> set[int]:
    """Those of the sockets that a process has open which this one sees.

    In a sandbox with process ids of its own, these are the processes of the sandbox: the sockets of
    others are not among them, also where the network is shared.
    """
    names = {f"socket:[{inode}]": inode for inode in inodes}
    found: set[int] = set()
    for process in os.listdir(_PROCESSES):  # noqa: PTH208 - many entries
        if len(found) == len(names):
            break
        if process.isdecimal():
            found.update(names[name] for name in _open_files(process) if name in names)
    return found


def _open_files(process: str) -> Iterator[str]:
    folder = f"{_PROCESSES}/{process}/fd"
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for number in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/{number}")  # noqa: PTH115


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= _LONGEST_NUMBER


def _lines() -> Iterator[str]:
    for table in _TABLES:
        try:
            with table.open(encoding="ascii", errors="replace") as file:
                yield from file
        except OSError:
            continue


def _encode(address: Address, long: bool) -> str:
    """An address as the tables have it. A socket of IPv6 has those of IPv4 in their ``long`` form."""
    found = ipaddress.ip_address(address[0].partition("%")[0])
    packed = found.packed
    if long and len(packed) == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    # The kernel prints each word of 4 bytes as a number in the byte order of the machine.
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    shown = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{shown}:{address[1]:04X}"

"""Whose process is at the other end of a TCP connection of this machine.

The kernel tells it in ``/proc/net/tcp`` and ``tcp6``, one connection a line: its own address, the
other one, its state, and the user id of who made it.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""In other states, the kernel may tell 0 in place of the user."""
_LOCAL, _REMOTE, _STATE, _USER = 1, 2, 3, 7


class NoConnectionTable(Exception):
    """The machine does not tell whose connections are whose."""


def check_table() -> None:
    """Raise ``NoConnectionTable`` unless this machine tells whose connections are whose."""
    if not _TABLES[0].is_file():
        raise NoConnectionTable(f"{_TABLES[0]} does not exist")


def owner_of(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user id of the process that connected from ``peer`` to ``here``; ``None`` if unknown."""
    return find_owner(_lines(), peer, here)


def find_owner(lines: Iterable[str], peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The same from the lines of the tables. Lines of another form are left out."""
    ends = [(_encode(peer, long), _encode(here, long)) for long in (False, True)]
    for line in lines:
        words = line.split()
        if len(words) <= _USER or words[_STATE] != _ESTABLISHED:
            continue
        if (words[_LOCAL], words[_REMOTE]) in ends and words[_USER].isdecimal():
            return int(words[_USER])
    return None


def _lines() -> Iterator[str]:
    for table in _TABLES:
        try:
            with table.open(encoding="ascii", errors="replace") as file:
                yield from file
        except OSError:
            continue


def _encode(address: tuple[str, int], long: bool) -> str:
    """An address as the tables have it. A socket of IPv6 has those of IPv4 in their ``long`` form."""
    found = ipaddress.ip_address(address[0].partition("%")[0])
    packed = found.packed
    if long and len(packed) == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    # The kernel prints each word of 4 bytes as a number in the byte order of the machine.
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    shown = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{shown}:{address[1]:04X}"

"""The machine's firewall: its program, and news that somebody has changed it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Sequence

_LIMIT_S = 30.0
_NFTABLES, _TABLE_GONE = 12, (10 << 8) | 2
# bind(2) takes a mask: group 7 is NFNLGRP_NFTABLES.
_CHANGES_GROUP = 1 << 6


def nft(arguments: Sequence[str], text: str = "", *, check: bool = True) -> bool:
    """Run the firewall's program, in the network of this process; whether it went well.

    Raises:
        OSError: It did not, or there is none.
    """
    try:
        ran = subprocess.run(  # noqa: S603 - our own rules
            ["nft", *arguments],  # noqa: S607
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    if ran.returncode and check:
        raise OSError(f"nft refuses the rules: {ran.stderr.decode(errors='replace').strip()[:300]}")
    return not ran.returncode


def list_rules(arguments: Sequence[str]) -> str:
    """What the firewall's program lists, without what is in sets.

    Raises:
        OSError: There is no such program, or it fails.
    """
    try:
        ran = subprocess.run(  # noqa: S603 - names that it has listed itself
            ["nft", "--terse", "list", *arguments],  # noqa: S607
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return ran.stdout.decode(errors="replace")


def news() -> socket.socket:
    """Readable when somebody has changed the firewall.

    Raises:
        OSError: That is not permitted.
    """
    changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NFTABLES)
    changes.setblocking(False)
    changes.bind((0, _CHANGES_GROUP))
    return changes


def lost_a_table(changes: socket.socket) -> bool:
    """Read all the news; whether a table is gone, or may be."""
    gone = False
    with contextlib.suppress(BlockingIOError):
        while True:
            try:
                gone = _lists_removal(changes.recv(1 << 16)) or gone
            except OSError as error:  # more changes than fit: ours may be among them
                if isinstance(error, BlockingIOError):
                    raise
                gone = True
    return gone


def _lists_removal(data: bytes) -> bool:
    at = 0
    while at + 16 <= len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        if int.from_bytes(data[at + 4 : at + 6], "little") == _TABLE_GONE:
            return True
        at += max(16, length + 3 & ~3)
    return False

"""Which name servers jobs ask. Those on the machine's loopback are out of their reach: what
stands behind is taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

_SOURCES = (
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
)
_MOST = 3
"""The C library reads no more."""


@dataclass(frozen=True)
class Resolvers:
    """The name servers, and the ``resolv.conf`` that names them."""

    servers: tuple[IPv4Address, ...]
    text: str


def find(configured: Sequence[str] = (), sources: Sequence[str] = _SOURCES) -> Resolvers:
    """What the operator said, else the first of ``sources`` that names a server beyond loopback.

    Other lines, such as the domains to search, are those of the first source.
    """
    texts = [_text(path) for path in sources]
    servers: Sequence[IPv4Address] = [IPv4Address(word) for word in configured]
    for text in texts:
        servers = servers or [
            one for one in _servers(text) if not one.is_loopback and not one.is_unspecified
        ]
    servers = tuple(servers[:_MOST])
    others = [
        text
        for text in texts[0].splitlines()
        if text.split()[:1] in (["search"], ["domain"], ["options"])
    ]
    return Resolvers(
        servers,
        "".join(f"{text}\n" for text in [*(f"nameserver {one}" for one in servers), *others]),
    )


def mark(sources: Sequence[str] = _SOURCES) -> tuple[object, ...]:
    """Something else when a source has changed."""
    found: list[object] = []
    for path in sources:
        try:
            facts = os.stat(path)  # noqa: PTH116 - before each start
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def _servers(text: str) -> list[IPv4Address]:
    found = []
    for words in map(str.split, text.splitlines()):
        if len(words) > 1 and words[0] == "nameserver":
            try:
                found.append(IPv4Address(words[1]))
            except ValueError:  # of the other family, to which jobs have no way
                continue
    return found

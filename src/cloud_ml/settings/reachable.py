"""What an operator opens to jobs beyond the open internet, as written in
``engine.network_allow``. Pure.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

ALLOWED = "addresses and ranges with commas between, each with a port or without: 10.1.0.0/16, 10.2.3.4:5432"


@dataclass(frozen=True)
class Reachable:
    """A range of addresses; ``port`` 0 stands for all of them."""

    range: ipaddress.IPv4Network
    port: int = 0


def parse(text: str) -> tuple[Reachable, ...]:
    """The entries of a setting.

    Raises:
        ValueError: An entry is none; it is the message.
    """
    return tuple(_entry(word) for word in text.replace(",", " ").split())


def _entry(word: str) -> Reachable:
    place, colon, port = word.partition(":")
    try:
        found = Reachable(ipaddress.IPv4Network(place), int(port) if colon else 0)
    except ValueError:
        raise ValueError(word) from None
    if colon and not 0 < found.port <= 65_535:
        raise ValueError(word)
    return found

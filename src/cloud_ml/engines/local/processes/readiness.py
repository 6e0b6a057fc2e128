"""Waits until something can be read."""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Sequence

Source = socket.socket | int


def find_readable(sources: Sequence[Source], timeout_s: float | None = None) -> list[Source]:
    """Those of the sources that can be read, or whose other end is closed; without a timeout at
    least one. Sources are told apart by their descriptors.
    """
    # `select.select` refuses descriptors above 1023, which a spawner of many jobs has.
    poll = select.poll()
    known: dict[int, Source] = {}
    for one in sources:
        number = one if isinstance(one, int) else one.fileno()
        known[number] = one
        poll.register(number, select.POLLIN)
    found = poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
    return [known[number] for number, _ in found]

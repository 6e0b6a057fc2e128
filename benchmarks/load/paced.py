"""Requests at a given rate, whatever becomes of those before: who is late is late from when it
was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness import high, median

from load.wire import Answer, Pool

Check = Callable[[Answer], bool]


@dataclass
class Kind:
    """One kind of request: what is sent, how to know a good answer, and how long they took, in
    milliseconds.
    """

    name: str
    requests: Sequence[bytes]
    good: Check
    took: list[float] = field(default_factory=list)
    bad: list[Answer] = field(default_factory=list)
    sent: int = 0

    def next(self) -> bytes:
        """The next request; from the first one on again when all were sent."""
        request = self.requests[self.sent % len(self.requests)]
        self.sent += 1
        return request

    def line(self) -> str:
        """What it came to."""
        return f"{self.name}: {len(self.took)} answered, p50 {median(self.took):.1f}, p99 {high(self.took):.1f} ms"


async def paced(endpoint: str, kind: Kind, rate: float, seconds: float) -> None:
    """Send ``rate`` requests a second for so long, and wait for the last answer (at most 30 s)."""
    pool, all_there = Pool(endpoint), asyncio.Event()
    total = int(rate * seconds)
    begin, open_ = time.perf_counter() + 0.05, 0

    def send(due: float) -> None:
        def finish(answer: Answer) -> None:
            nonlocal open_
            open_ -= 1
            kind.took.append(1000 * (time.perf_counter() - due))
            if not kind.good(answer):
                kind.bad.append(answer)
            if not open_ and kind.sent == total:
                all_there.set()

        pool.ask(kind.next(), finish)

    for number in range(total):
        due = begin + number / rate
        while (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        open_ += 1
        send(due)
    try:
        async with asyncio.timeout(30):
            await all_there.wait()
    finally:
        pool.close()


def check(kinds: Sequence[Kind]) -> None:
    """Every answer must be the right one, else there is no figure.

    Raises:
        SystemExit: One was not.
    """
    for kind in kinds:
        if kind.bad:
            one = kind.bad[0]
            raise SystemExit(
                f"{len(kind.bad)} wrong answers to {kind.name}, such as {one.status} "
                f"{one.body[:300]!r}"
            )

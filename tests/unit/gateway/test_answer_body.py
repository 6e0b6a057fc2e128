"""Bodies in many small pieces: from a replica, and to a peer that does not read."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

from cloud_ml.gateway import answer_body
from cloud_ml.gateway.answer_body import AnswerBody
from cloud_ml.net.http2.outgoing import Outgoing
from cloud_ml.net.http2.stream import Stream
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.tuning import SENT_IN_TURN
from support.measuring import growth

PIECES = 300_000


def test_small_pieces_take_little_more_than_their_bytes() -> None:
    body = AnswerBody()
    tracemalloc.start()
    try:
        for number in range(PIECES):
            body.add(number.to_bytes(3))
        own = tracemalloc.Filter(True, answer_body.__file__)
        traces = tracemalloc.take_snapshot().filter_traces([own]).statistics("filename")
        held = sum(trace.size for trace in traces)
    finally:
        tracemalloc.stop()
    assert body.size == 3 * PIECES
    assert held < 2 * body.size
    assert b"".join(body.pieces()) == b"".join(number.to_bytes(3) for number in range(PIECES))


def test_pieces_of_all_sizes_stay_in_order() -> None:
    body = AnswerBody()
    sent = [bytes([number % 251]) * (number * 37 % 6_000) for number in range(100)]
    for piece in sent:
        body.add(piece)
    assert b"".join(body.pieces()) == b"".join(sent)


def _pushed(pieces: int) -> tuple[Outgoing, Stream[None], _Loop]:
    loop = _Loop()
    outgoing = Outgoing(LoopIteration(cast("Any", loop)))
    stream: Stream[None] = Stream(None)
    outgoing.push(1, stream, bytes(65_535))  # all that the windows take
    for _ in range(pieces):
        outgoing.push(1, stream, b"xyz")
    return outgoing, stream, loop


def test_pieces_that_wait_for_a_window_are_not_copied_again_and_again() -> None:
    _, power = growth(lambda pieces: lambda: _pushed(pieces), PIECES // 8)
    assert power < 1.5
    outgoing, stream, loop = _pushed(PIECES)
    assert outgoing.holds(1) == outgoing.held == 3 * PIECES
    outgoing.more(0, 3 * PIECES, None)
    outgoing.more(1, 3 * PIECES, stream)
    assert outgoing.held >= 3 * PIECES - SENT_IN_TURN, "a turn sends a bounded part"
    loop.run()
    assert outgoing.holds(1) == outgoing.held == 0


class _Loop:
    time = time.monotonic

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def run(self) -> None:
        """Run turns until nothing is due."""
        while self._soon:
            self._soon.pop(0)()

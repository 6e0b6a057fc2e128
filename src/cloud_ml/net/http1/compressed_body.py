"""Bodies of requests that came compressed."""

from collections.abc import Callable

from cloud_ml.net.budget import NO_ROOM
from cloud_ml.net.compression import Defer, Inflater, SlicedWork
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.pieces import Pieces, gather_pieces


def inflate(
    call: HttpCall,
    body: bytes | Pieces,
    limits: Limits,
    *,
    recount: Callable[[HttpCall, int], None],
    defer: Defer,
    serve: Callable[[bytes | Pieces], None],
) -> None:
    """Serve a call with the body that it meant: a long one takes several turns.

    ``recount`` is told how large the body has become, and ``defer`` has work done in a later turn.
    """
    inflater = Inflater(body, call.head.encoding, limits.body_bytes)

    def go_on_later(work: Callable[[], None], units: int) -> None:
        recount(call, inflater.size)
        if limits.budget.full:
            call.refuse(503, NO_ROOM)
        else:
            defer(work, units)

    def done() -> None:
        recount(call, inflater.size)
        serve(gather_pieces(inflater.parts) if limits.in_pieces else inflater.content)

    SlicedWork(
        inflater, defer=go_on_later, still_needed=call.waits, done=done, failed=call.fail
    ).run()

# Made of aio/waiting.py by tools/twins.py: change that one, then run `make format`.
"""Waiting for the end of something, while the server may be restarted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from cloud_ml.errors import TransportError, TryAgain, WaitTimedOut
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.timeouts import LONG_POLL_S, PATIENCE

V = TypeVar("V")


def wait_for_end(
    view: V,
    ask: Callable[[V, float], V],
    *,
    state: Callable[[V], str],
    ended: Callable[[V], bool],
    timeout: float | None,
) -> V:
    """The view of what has ended. A server that is away is waited for, about two minutes.

    Args:
        view: How it stands.
        ask: Returns a newer view than the one it is given, or the same after so many seconds.
        state: Says where it stands, such as ``linear is still Running``.
        ended: Whether nothing follows.
        timeout: Seconds; ``None`` waits for ever.

    Raises:
        WaitTimedOut: It has not ended by then.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    failures = 0
    while not ended(view):
        left = LONG_POLL_S if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimedOut(f"{state(view)} after {timeout:g} s")
        wait_s = min(left, LONG_POLL_S)
        try:
            view = ask(view, wait_s)
        except (TransportError, TryAgain):
            failures += 1
            if failures >= PATIENCE.attempts:
                raise
            delay_s = PATIENCE.backoff(failures, random.random())  # noqa: S311 - spreads retries, guards nothing
            pause(min(delay_s, wait_s))
        else:
            failures = 0
    return view

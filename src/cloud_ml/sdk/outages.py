# Made of aio/outages.py by tools/twins.py: change that one, then run `make format`.
"""Requests that outlast a restart of the server."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from cloud_ml.errors import TransportError, TryAgain
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.timeouts import PATIENCE

T = TypeVar("T")


def outlast_outage(action: Callable[[], T]) -> T:
    """What ``action`` answers, which is called again while the server does not answer: a loop of
    hours must not end because the server is upgraded meanwhile.

    Args:
        action: Sends a request that may be repeated.

    Raises:
        TransportError: The server has not answered for about two minutes.
    """
    failures = 0
    while True:
        try:
            return action()
        except (TransportError, TryAgain):
            failures += 1
            if failures >= PATIENCE.attempts:
                raise
            pause(PATIENCE.backoff(failures, random.random()))  # noqa: S311 - guards nothing

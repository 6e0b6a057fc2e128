"""How long a command waits, as its option ``--timeout`` says."""

from __future__ import annotations

import time


class WaitLimit:
    """A limit that runs from now on; none if ``timeout`` is ``None``.

    Raises:
        InvalidRequest: It is no time such as ``90s`` or ``2h``.
    """

    def __init__(self, timeout: str | None) -> None:
        from cloud_ml.models import common

        self.seconds: int | None = None
        """Of the whole; ``None`` without a limit."""
        self._typed = timeout or ""
        if timeout is not None:
            self.seconds = common.duration_seconds(common.check_duration("timeout", timeout))
        self._began = time.monotonic()

    def left(self) -> float | None:
        """Seconds that are left; ``None`` without a limit."""
        if self.seconds is None:
            return None
        return max(0.0, self._began + self.seconds - time.monotonic())

    def __str__(self) -> str:
        """As it was typed, with a unit."""
        return f"{self._typed}s" if self._typed.isdecimal() else self._typed

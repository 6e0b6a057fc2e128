"""How long and how often a peer may cost something without getting on: counted, and forgiven
with time.
"""

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.stream import Limits


class ConnectionTimeouts:
    """Frames that cost a peer nothing (resets, pings, settings, empty data) and seconds without
    progress.

    Half of the count is forgiven each second, and one for each answered request, so that a client
    that cancels much and also works is never cut.
    """

    __slots__ = ("_half", "_limits", "_stuck", "count", "quiet")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.count = 0
        self.quiet = 0
        self._half = 0
        self._stuck = 0

    def free(self, cost: int = 1) -> None:
        """A frame came that is free for the peer, or frames that cost as much as so many.

        Raises:
            ConnectionFault: where it was one too many.
        """
        self.count += cost
        if self.count > self._limits.resets:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many frames that lead to nothing")

    def second(self, *, half: bool, stuck: bool) -> None:
        """A second passed; ``half``: a head is not whole; ``stuck``: the peer does not take what it
        asked for.

        Raises:
            ConnectionFault: where that lasts too long.
        """
        self.count >>= 1
        self.quiet += 1
        self._half = self._half + 1 if half else 0
        self._stuck = self._stuck + 1 if stuck else 0
        if self._half > self._limits.head_s:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "a head that does not come to its end")
        if self._stuck > self._limits.unread_s:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "answers that are not read")

    @property
    def idle(self) -> bool:
        """Whether nothing came for long."""
        return self.quiet > self._limits.idle_s

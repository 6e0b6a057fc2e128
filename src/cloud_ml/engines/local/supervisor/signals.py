"""The signals that a supervisor hears: that somebody requests something, and that news are due."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from types import FrameType

from cloud_ml.engines.local.supervisor.reporting import Reporter


class StopRequested(BaseException):
    """Raised by the signal handler while staging, so that whatever is waited for is given up."""


class SignalListener:
    """Has signals wake the selector, and notes that somebody may have left a request.

    Args:
        selector: Woken by each signal.
        reporter: Told of SIGALRM. While it is ``staging``, a stop raises ``StopRequested``.
        is_stopped: Whether a stop is in the ledger.
        hears_ends: Whether the end of any process of the job wakes the selector too.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        reporter: Reporter,
        is_stopped: Callable[[], bool],
        *,
        hears_ends: bool,
    ) -> None:
        self._reporter = reporter
        self._is_stopped = is_stopped
        self._signalled = False
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        self._ends = (receiver, sender)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGALRM, reporter.on_alarm)
        # An empty handler is needed: without a Python handler, the signal does not reach the
        # wakeup descriptor.
        if hears_ends:
            signal.signal(signal.SIGCHLD, lambda *_: None)
        selector.register(receiver, selectors.EVENT_READ, (_drain, receiver))

    def take_signal(self) -> bool:
        """Whether SIGTERM came since the last call: whoever leaves a request sends it afterwards."""
        signalled, self._signalled = self._signalled, False
        return signalled

    def close(self) -> None:
        """Leave nothing behind for the next gang of this process. A late request for this one is
        over.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGALRM):
            # Use a function and not SIG_IGN, because executed programs inherit SIG_IGN
            # (execve(2)).
            signal.signal(number, _ignore)
        # Reset this before closing the sockets. Their numbers may be reused at once, and a signal
        # would then write a byte into another file.
        signal.set_wakeup_fd(-1)
        for end in self._ends:
            end.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._signalled = True
        if self._reporter.staging and self._is_stopped():
            # Only once: a second signal must not interrupt the clean-up.
            self._reporter.staging = False
            raise StopRequested


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame


def _drain(receiver: socket.socket) -> None:
    try:
        while receiver.recv(4096):
            pass
    except BlockingIOError:
        pass

"""The calls on one HTTP/2 connection to a replica, from the side of their callers: how they begin,
wait for a stream, pause and are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cloud_ml.gateway.call_table import Caller, CallTable, ReplicaCall
from cloud_ml.gateway.client_limits import ClientLimits, ControlFrameBudget
from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.outgoing import Outgoing
from cloud_ml.net.http2.stream import Received
from cloud_ml.net.loop_iteration import LoopIteration


class Http2Calls:
    """What callers ask of a connection. ``Http2Client`` adds what the replica says on it; a
    subclass, since a call between the two would be paid for each frame.
    """

    def __init__(
        self,
        limits: ClientLimits,
        iteration: LoopIteration,
        gone: Callable[[Any], None],
        *,
        report: Callable[[str], None],
        bodies: Budget,
    ) -> None:
        self._limits = limits
        self._outgoing = Outgoing(iteration)
        self._gone: Callable[[Any], None] | None = gone  # takes the class that is made
        self._report = report
        self._transport: asyncio.Transport | None = None
        self._calls = CallTable(limits.window, bodies)
        self._control = ControlFrameBudget(limits.control_frames)
        self._most = 100  # until the replica says another number
        self._paused = False  # the replica does not read
        self.open = False

    # --- calls out ---

    def call(self, head: bytes, body: Received, caller: Caller) -> None:
        """Send a whole request; ``head`` is a block of headers that needs no table. Only while
        ``open``.
        """
        if self._paused or len(self._calls) >= self._most:
            self._calls.enqueue(head, body, caller)
            return
        number, call = self._calls.begin(caller)
        self._control.earn(len(body))
        self._outgoing.message(number, call.stream, head, body)
        # RFC 9113, section 5.1.1: numbers of streams are not used twice, and end at 2**31 - 1.
        if self._calls.next > frames.LARGEST_WINDOW:
            self._leave()

    def begin(self, head: bytes, caller: Caller) -> int:
        """Begin a request whose body comes piece by piece; its number, or 0 where there are too
        many already.
        """
        if len(self._calls) >= self._most:
            return 0
        number, call = self._calls.begin(caller)
        call.request_sent = False
        self._outgoing.begin(number, head)
        return number

    def push(self, number: int, data: bytes, *, ended: bool) -> int:
        """A piece of such a body, and whether it was the last; how many bytes the replica has
        not taken yet.
        """
        call = self._calls.find(number)
        if call is None:
            return 0
        if data:
            self._control.earn(len(data))
            self._outgoing.push(number, call.stream, data)
        if ended:
            call.request_sent = True
            self._outgoing.end(number)
        return self._outgoing.holds(number)

    def pause(self, number: int) -> None:
        """Let the replica send no more of an answer than its window, until ``resume``."""
        call = self._calls.find(number)
        if call is not None:
            call.paused = True

    def resume(self, number: int) -> None:
        """Let the replica send on."""
        call = self._calls.find(number)
        if call is not None and call.paused:
            call.paused = False
            self._acknowledge(number, call, 0)

    def when_read(self, number: int, resume: Callable[[], None]) -> None:
        """Call ``resume`` in a later turn, once the replica has taken what was pushed."""
        self._outgoing.when_out(number, resume)

    def cancel(self, caller: Caller) -> None:
        """Nobody waits for this answer any more."""
        number = self._calls.number_of(caller)
        if number:
            self._give_up(number)
        else:
            self._calls.remove(caller)
        self._go_on()

    def leave(self) -> None:
        """Make no further call; close when the last answer is in."""
        self._leave()
        self._go_on()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- how they go on and end ---

    def _leave(self) -> None:
        self.open = False
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)

    def _go_on(self) -> None:
        calls = self._calls
        while calls.queued and len(calls) < self._most and self.open and not self._paused:
            self.call(*calls.dequeue())
        if not self.open:
            while calls.queued:
                # They never had a stream, so another replica may answer them.
                calls.dequeue()[2].failed(refused=True)
            if not calls and self._transport is not None:
                self._outgoing.flush()
                self._transport.close()

    def _acknowledge(self, number: int, call: ReplicaCall, size: int) -> None:
        call.unacknowledged += size
        if call.unacknowledged > self._limits.window:
            raise ConnectionFault(
                frames.FLOW_CONTROL_ERROR, f"more data on stream {number} than was allowed"
            )
        # At half of the window: a frame for each piece would cost more than the piece, and a replica
        # that waits for the last byte of its window stalls. Not telling it is what pauses it.
        if call.unacknowledged > self._limits.window >> 1 and not call.paused:
            self._outgoing.send(frames.window_update(number, call.unacknowledged))
            call.unacknowledged = 0

    def _give_up(self, number: int) -> None:
        """Tell the replica that this call is over."""
        self._outgoing.drop(number)
        self._calls.end(number, for_both=False)
        self._outgoing.send(frames.reset(number, frames.CANCEL))

    def _end_stalled(self) -> None:
        """Fail calls whose answer began and does not go on, and those that the replica does not
        read.
        """
        for number, call in self._calls:
            if call.head is None or call.caller.streams:
                continue
            call.silent_s += 1
            if call.silent_s > self._limits.stalled_s:
                self._report(f"an answer that paused for {self._limits.stalled_s:g} s")
                self._give_up(number)
                call.caller.failed(refused=False)
        for number in self._outgoing.overdue(self._limits.unread_s):
            unread = self._calls.find(number)
            if unread is not None:
                self._report(f"a request left unread for {self._limits.unread_s} s")
                self._give_up(number)
                unread.caller.failed(refused=False)

    def _fail_all(self) -> None:
        begun, queued = self._calls.clear()
        for caller in begun:
            caller.failed(refused=False)
        for caller in queued:
            caller.failed(refused=True)

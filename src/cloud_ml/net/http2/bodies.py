"""What has come of bodies that are not whole: where it lies, what it may take up, and what the
peer may send of it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.outgoing import Outgoing
from cloud_ml.net.http2.stream import HEAD_BYTES, Gathered, Limits, Stream
from cloud_ml.net.tuning import GROWTH

LONG_FRAME = 1_024
"""Bytes of a frame that is put to a body without being counted as work: smaller ones cost more
than their bytes.
"""
TRUSTED = 64
"""How many times what has come of a body is made ready for it, where it says that it will be
long.
"""


class Bodies:
    """Gathers the bodies of a connection.

    ``length`` tells how long one will be, by its head and its first bytes.
    """

    def __init__(
        self,
        limits: Limits,
        length: Callable[[Any, memoryview], int],
        streams: Mapping[int, Stream[Any]],
        outgoing: Outgoing,
    ) -> None:
        self._limits = limits
        self._half_window = limits.window >> 1
        self._length = length
        self._streams = streams
        self._outgoing = outgoing
        self._held = 0
        self._paused: set[int] = set()  # streams that get no window
        self._sunk: dict[
            int, int
        ] = {}  # what sinks keep of bodies that are passed on piece by piece
        self._unacknowledged = 0

    # --- windows ---

    def count(self, size: int) -> None:
        """Give the peer the connection's window back, in large pieces."""
        self._unacknowledged += size
        if self._unacknowledged > self._half_window:
            self._outgoing.send(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0

    def acknowledge(self, number: int, stream: Stream[Any], size: int) -> None:
        """Give the peer of a long body its window back, in large pieces.

        Raises:
            ConnectionFault: more came than the window allows.
        """
        stream.unacknowledged += size
        if stream.unacknowledged > self._half_window:
            if stream.unacknowledged > self._limits.window:
                raise ConnectionFault(
                    frames.FLOW_CONTROL_ERROR, f"more data on stream {number} than was allowed"
                )
            # Behind the check: a paused stream may use up its window, and no more.
            if number in self._paused:
                return
            self._outgoing.send(frames.window_update(number, stream.unacknowledged))
            stream.unacknowledged = 0

    def pause(self, number: int) -> None:
        """Give a stream no more window, until ``resume``."""
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Give it what it did not get."""
        stream = self._streams.get(number)
        if number in self._paused:
            self._paused.remove(number)
            if stream is not None:
                self.acknowledge(number, stream, 0)

    # --- what came ---

    def add(self, stream: Stream[Any], data: bytes | memoryview, at: int, stop: int) -> bool:
        """Put a piece to what has come; False where the body is too large, or all bodies
        together are.
        """
        body = stream.body
        if body is None or body.size + stop - at > body.held:
            body = self._made_room(stream, memoryview(data)[at:stop])
            if body is None:
                return False
        body.add(data, at, stop)
        return True

    def add_frames(self, data: memoryview, at: int) -> int:
        """Put long frames to the bodies they belong to, as long as there is room; where something
        else begins.

        Raises:
            ConnectionFault: more came than the window allows.
        """
        streams, unpack, half, most = (
            self._streams,
            frames.HEAD.unpack_from,
            self._half_window,
            self._limits.frame_bytes,
        )
        end, came = len(data), 0
        last = end - HEAD_BYTES
        while at <= last:  # some forty times for an image: calls are written out
            high, low, kind, flags, number = unpack(data, at)
            size = high << 8 | low
            begin = at + HEAD_BYTES
            stop = begin + size
            stream = streams.get(number)
            if (
                kind != frames.DATA
                or flags
                or size < LONG_FRAME
                or size > most
                or stop > end
                or stream is None
            ):
                break
            body = stream.body
            if body is None or size > body.held - body.size:
                break
            put = body.size + size
            body.view[body.size : put] = data[begin:stop]
            body.size = put
            stream.unacknowledged += size
            came += size
            if stream.unacknowledged > half:
                self.acknowledge(number, stream, 0)
            at = stop
        self.count(came)
        return at

    def lacks(self, number: int) -> int:
        """How many bytes of a body there is still room for; 0 where none has begun to be
        gathered.
        """
        stream = self._streams.get(number)
        body = stream.body if stream is not None else None
        return body.held - body.size if body is not None else 0

    def room(self, number: int, size: int) -> memoryview | None:
        """Where the next ``size`` bytes of a body belong, or as many as there is room for."""
        stream = self._streams.get(number)
        body = stream.body if stream is not None else None
        return body.room(size) if body is not None else None

    def placed(self, number: int, size: int) -> None:
        """So many bytes were put there.

        Raises:
            ConnectionFault: more came than the window allows.
        """
        stream = self._streams[number]
        assert stream.body is not None
        stream.body.size += size
        self.count(size)
        self.acknowledge(number, stream, size)

    def close(self, stream: Stream[Any]) -> Gathered | None:
        """What came of a body that is whole. It counts until ``release``."""
        body, stream.body = stream.body, None
        if body is not None:
            stream.held = body.size
            self._hold(body.size - body.held)
        return body

    def count_whole(self, stream: Stream[Any], size: int) -> bool:
        """Count a body that came at once, until ``release``; False where all bodies together are
        too large.
        """
        stream.held = size
        self._hold(size)
        return not self._limits.budget.full

    def recount_whole(self, stream: Stream[Any], size: int) -> bool:
        """A whole body takes more than what came of it, as it is read; see ``count_whole``."""
        self._hold(size - stream.held)
        stream.held = size
        return not self._limits.budget.full

    def release(self, stream: Stream[Any]) -> None:
        """The request was answered or given up: its body counts no more."""
        body, stream.body = stream.body, None
        size, stream.held = stream.held, 0
        self._hold(-(size if body is None else size + body.held))

    def hold(self, number: int, size: int) -> bool:
        """The sink of a stream keeps so many bytes now; False where all bodies together are too
        large.
        """
        before = self._sunk.pop(number, 0)
        if size:
            self._sunk[number] = size
        self._hold(size - before)
        return not self._limits.budget.full

    def drop(self) -> None:
        """Nothing of the connection counts any more."""
        self._sunk.clear()
        self._hold(-self._held)

    def _made_room(self, stream: Stream[Any], piece: memoryview) -> Gathered | None:
        size, body, limits = len(piece), stream.body, self._limits
        if body is None:
            declared = self._length(stream.head, piece)
            body = stream.body = Gathered(
                min(max(declared, size), TRUSTED * size, limits.body_bytes), declared
            )
            self._hold(body.held)
        elif body.size + size <= limits.body_bytes:
            most = (
                body.declared_bytes
                if body.declared_bytes >= body.size + size
                else limits.body_bytes
            )
            held = min(
                max(body.size + size, body.held + min(body.held, GROWTH)), most, limits.body_bytes
            )
            self._hold(held - body.held)
            body.grow(held)
        return body if body.size + size <= body.held and not limits.budget.full else None

    def _hold(self, size: int) -> None:
        self._held += size
        self._limits.budget.add(size)

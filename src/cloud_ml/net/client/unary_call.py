"""One request over HTTP/2 and its answer, as the client sees them: RFC 9113 for a single stream.

Without a socket: what is to be sent comes out, what arrived goes in.
"""

from __future__ import annotations

from collections.abc import Iterable

from cloud_ml.net.client.errors import AnswerTooLarge, CallLost, NotHttp
from cloud_ml.net.client.header_blocks import HeaderBlocks, encode_block
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import frame

_STREAM = 1
_MOST_BLOCK_BYTES = 4 * frames.DEFAULT_FRAME
_LARGEST_FRAME_SENT = 1 << 20
_MOST_BLOCKS = 32
"""Blocks of headers of one answer: it has a head and trailers, and maybe interim answers."""


class UnaryCall:
    """A request that begins with the connection, and its answer.

    Args:
        fields: Of the request, those with a colon first.
        body: All of it.
        most_bytes: The largest body of an answer.

    Attributes:
        fields: Of the answer, its trailers included; the last of a name counts.
        answer: Its body, as far as it has come.
        over: Whether the answer is whole, or was cut behind its status.
    """

    def __init__(self, fields: Iterable[tuple[str, str]], body: bytes, *, most_bytes: int) -> None:
        self.fields: dict[str, str] = {}
        self.answer = bytearray()
        self.over = False
        self._request = encode_block(fields)
        self._unsent = memoryview(body)
        self._most_bytes = most_bytes
        self._arrived = bytearray()
        self._blocks = HeaderBlocks()
        self._block: bytearray | None = None
        self._block_ends = False
        self._blocks_read = 0
        self._windows = {0: frames.DEFAULT_WINDOW, _STREAM: frames.DEFAULT_WINDOW}
        self._initial_window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.DEFAULT_FRAME

    def begin(self) -> bytes:
        """What is to be sent first."""
        # The answer is bounded by its size (`most_bytes`), so its windows need not bound it.
        ours = {frames.ENABLE_PUSH: 0, frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW}
        return b"".join(
            (
                frames.PREFACE,
                frames.settings(ours),
                frames.window_update(0, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW),
                frame(frames.HEADERS, frames.END_HEADERS, _STREAM, self._request),
                self._next_data(),
            )
        )

    def receive(self, data: bytes) -> bytes:
        """Read what has arrived; what is to be sent then.

        Raises:
            NotHttp: It is malformed.
            CallLost: The server ended the call without an answer.
            AnswerTooLarge: The answer is larger than it may be.
        """
        self._arrived += data
        sent = []
        while not self.over and (found := self._take_frame()) is not None:
            sent.append(self._handle_frame(*found))
        if not self.over:
            sent.append(self._next_data())
        return b"".join(sent)

    def _take_frame(self) -> tuple[int, int, int, bytes] | None:
        """Kind, flags, stream and payload of the next frame, if it is there as a whole."""
        arrived = self._arrived
        if len(arrived) < frames.HEAD.size:
            return None
        high, low, kind, flags, stream = frames.HEAD.unpack_from(arrived)
        size = high << 8 | low
        if size > frames.DEFAULT_FRAME:
            raise NotHttp("a frame is too large")
        end = frames.HEAD.size + size
        if len(arrived) < end:
            return None
        payload = bytes(arrived[frames.HEAD.size : end])
        del arrived[:end]
        return kind, flags, stream & frames.LARGEST_WINDOW, payload

    def _handle_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        """Act on a frame; the answer that it wants at once."""
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._adopt(payload)
            return frame(frames.SETTINGS, frames.ACK, 0)
        if kind == frames.PING and not flags & frames.ACK:
            return frame(frames.PING, frames.ACK, 0, payload)
        if kind == frames.WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big") & frames.LARGEST_WINDOW
        elif kind == frames.GOAWAY and int.from_bytes(payload[:4], "big") < _STREAM:
            raise CallLost("the server went away before it took the call")
        elif stream == _STREAM:
            self._read_answer(kind, flags, payload)
        return b""

    def _read_answer(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == frames.RST_STREAM:
            self.over = True
            # RFC 9113, section 8.1: a server may end a complete answer with a reset (NO_ERROR).
            if "grpc-status" not in self.fields:
                raise CallLost("the server gave the call up")
        elif kind == frames.DATA:
            # Masked: DATA has no priority, so the bit of that flag means nothing here.
            self.answer += _content(payload, flags & frames.PADDED)
            if len(self.answer) > self._most_bytes:
                raise AnswerTooLarge(f"the answer is larger than {self._most_bytes} bytes")
            self.over = bool(flags & frames.END_STREAM)
        elif kind == frames.HEADERS:
            self._block = bytearray(_content(payload, flags))
            self._block_ends = bool(flags & frames.END_STREAM)
            self._end_block(flags)
        elif kind == frames.CONTINUATION and self._block is not None:
            self._block += payload
            if len(self._block) > _MOST_BLOCK_BYTES:
                raise NotHttp("a block of headers is too large")
            self._end_block(flags)

    def _end_block(self, flags: int) -> None:
        if flags & frames.END_HEADERS and self._block is not None:
            self._blocks_read += 1
            if self._blocks_read > _MOST_BLOCKS:
                raise NotHttp("the answer has headers without end")
            self.fields |= self._blocks.read(bytes(self._block))
            self._block, self.over = None, self._block_ends

    def _adopt(self, settings: bytes) -> None:
        for place in range(0, len(settings) - 5, frames.SETTING.size):
            name, value = frames.SETTING.unpack_from(settings, place)
            if name == frames.INITIAL_WINDOW_SIZE:
                self._windows[_STREAM] += value - self._initial_window
                self._initial_window = value
            elif name == frames.MAX_FRAME_SIZE:
                self._frame_bytes = min(max(value, frames.DEFAULT_FRAME), _LARGEST_FRAME_SENT)

    def _next_data(self) -> bytes:
        """As much of the request's body as the windows take."""
        sent = []
        while self._unsent:
            room = min(*self._windows.values(), self._frame_bytes, len(self._unsent))
            if room <= 0:
                break
            piece, self._unsent = self._unsent[:room], self._unsent[room:]
            for stream in self._windows:
                self._windows[stream] -= room
            flags = 0 if self._unsent else frames.END_STREAM
            sent.append(frame(frames.DATA, flags, _STREAM, bytes(piece)))
        return b"".join(sent)


def _content(payload: bytes, flags: int) -> bytes:
    """A payload without its padding and, of headers, without a priority."""
    try:
        return frames.strip_padding(payload, flags)
    except frames.ConnectionFault:
        raise NotHttp("a frame is padded beyond its end") from None

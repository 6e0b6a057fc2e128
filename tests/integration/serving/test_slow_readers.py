"""Callers that ask on a stream and do not read: they may send no more, and lose nothing when they read again."""

from __future__ import annotations

import numpy as np
import pytest

from cloud_ml.serving.protos import message
from support import http2_peer
from support.http2_peer import DATA, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, WINDOW_UPDATE, Frame, Peer, frame, number

PATH = "/inference.GRPCInferenceService/ModelStreamInfer"
HEAD = [
    (":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "x"),
    ("content-type", "application/grpc"), ("te", "trailers"),
]  # fmt: skip
VALUES = np.arange(65_536, dtype=np.float32)
REQUESTS = 120
MOST_BYTES = 24 << 20
"""Two windows of 8 MiB, at the gateway and at its replica, and half of one that was given back before."""


class Stream:
    """One stream on a connection whose other side may not send anything on it at first."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._window = peer.settings[INITIAL_WINDOW_SIZE]
        self._connection_window = self._window  # told beside the settings
        self.sent = 0
        self.pieces: list[bytes] = []
        self.over = False
        peer.send(frame(HEADERS, http2_peer.END_HEADERS, 1, peer.block(HEAD)))

    def send(self, data: bytes, *, patience_s: float, ended: bool = False) -> bool:
        """Send within the windows; False where they stay shut for so long."""
        rest = memoryview(data)
        while rest:
            room = min(self._window, self._connection_window, 16_384, len(rest))
            if not room:
                if not self.wait(patience_s):
                    return False
                continue
            last = ended and room == len(rest)
            self._peer.send(frame(DATA, http2_peer.END_STREAM if last else 0, 1, bytes(rest[:room])))
            self._window -= room
            self._connection_window -= room
            self.sent += room
            rest = rest[room:]
        return True

    def wait(self, patience_s: float) -> bool:
        """Take the next frame that came; False where none comes for so long."""
        self._peer.timeout(patience_s)
        try:
            self.take(next(self._peer.frames()))
        except TimeoutError:
            return False
        return True

    def take(self, each: Frame) -> None:
        assert each.kind != RST_STREAM, each.code
        if each.kind == WINDOW_UPDATE and each.stream:
            self._window += int.from_bytes(each.payload, "big")
        elif each.kind == WINDOW_UPDATE:
            self._connection_window += int.from_bytes(each.payload, "big")
        elif each.kind == DATA:
            self.pieces.append(each.payload)
            self._peer.send(frame(WINDOW_UPDATE, 0, 0, number(len(each.payload))))
        self.over = self.over or bool(each.stream and each.kind == HEADERS and each.flags & http2_peer.END_STREAM)

    @property
    def ids(self) -> list[str]:
        """The ids of the answers, in the order in which they came."""
        found, at, answers = [], 0, b"".join(self.pieces)
        while at < len(answers):
            size = int.from_bytes(answers[at + 1 : at + 5], "big")
            told = message("inference.ModelStreamInferResponse").FromString(answers[at + 5 : at + 5 + size])
            assert not told.error_message
            found.append(told.infer_response.id)
            at += 5 + size
        return found


def request(id_: int) -> bytes:
    made = message("inference.ModelInferRequest")(model_name="linear", id=f"{id_}")
    made.inputs.add(name="x", datatype="FP32", shape=[len(VALUES)])
    made.raw_input_contents.append(VALUES.tobytes())
    body: bytes = made.SerializeToString()
    return b"\0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("where", ["model server", "gateway"])
def test_a_caller_that_does_not_read_is_paused_and_loses_nothing(ports: dict[str, int], where: str) -> None:
    with Peer(ports[where]).begin((INITIAL_WINDOW_SIZE, 0)) as peer:
        stream, data = Stream(peer), b"".join(request(each) for each in range(REQUESTS))
        assert not stream.send(data, patience_s=1.0)
        assert stream.sent <= MOST_BYTES
        assert not stream.pieces
        peer.send(frame(WINDOW_UPDATE, 0, 1, number(2**31 - 1)))
        assert stream.send(data[stream.sent :], patience_s=30.0, ended=True)
        while not stream.over:
            assert stream.wait(30.0)
        assert stream.ids == [f"{each}" for each in range(REQUESTS)]

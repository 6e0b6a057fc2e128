"""Callers that ask on a stream and do not read: they may send no more, and lose nothing when
they read again.
"""

from __future__ import annotations

import numpy as np
import pytest

from cloud_ml.serving.protos import message
from support import http2_peer
from support.http2_peer import (
    DATA,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    RST_STREAM,
    WINDOW_UPDATE,
    Frame,
    Peer,
    frame,
    number,
)

HEAD = [
    (":method", "POST"), (":scheme", "http"), (":authority", "x"),
    ("content-type", "application/grpc"), ("te", "trailers"),
]  # fmt: skip
VALUES = np.arange(65_536, dtype=np.float32)
REQUESTS = 120
MOST_BYTES = (24 << 20) + 2 * 16_384
"""Two windows of 8 MiB, at the gateway and at its replica, and a half of each that was given back
before, with the frame that made it a half.
"""


class Inferences:
    """Requests of 256 KiB, with answers as large."""

    path = "/inference.GRPCInferenceService/ModelStreamInfer"

    def request(self, id_: int) -> bytes:
        made = message("inference.ModelInferRequest")(model_name="linear", id=f"{id_}")
        made.inputs.add(name="x", datatype="FP32", shape=[len(VALUES)])
        made.raw_input_contents.append(VALUES.tobytes())
        body: bytes = made.SerializeToString()
        return body

    def id_of(self, answer: bytes) -> str:
        response = message("inference.ModelStreamInferResponse").FromString(answer)
        assert not response.error_message
        id_: str = response.infer_response.id
        return id_


class Reflections:
    """The same for a method that is passed on without tensors."""

    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

    def request(self, id_: int) -> bytes:
        host = f"{id_}".ljust(VALUES.nbytes)
        body: bytes = message("grpc.reflection.v1.ServerReflectionRequest")(
            host=host, list_services=""
        ).SerializeToString()
        return body

    def id_of(self, answer: bytes) -> str:
        response = message("grpc.reflection.v1.ServerReflectionResponse").FromString(answer)
        assert response.list_services_response.service
        id_: str = response.valid_host.strip()
        return id_


class Stream:
    """One stream on a connection whose other side may not send anything on it at first."""

    def __init__(self, peer: Peer, path: str) -> None:
        self._peer = peer
        self._window = peer.settings[INITIAL_WINDOW_SIZE]
        self._connection_window = self._window  # told beside the settings
        self.sent = 0
        self.pieces: list[bytes] = []
        self.over = False
        peer.send(frame(HEADERS, http2_peer.END_HEADERS, 1, peer.block([(":path", path), *HEAD])))

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
            self._peer.send(
                frame(DATA, http2_peer.END_STREAM if last else 0, 1, bytes(rest[:room]))
            )
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
        self.over = self.over or bool(
            each.stream and each.kind == HEADERS and each.flags & http2_peer.END_STREAM
        )

    @property
    def answers(self) -> list[bytes]:
        """The messages that came."""
        found, at, came = [], 0, b"".join(self.pieces)
        while at < len(came):
            size = int.from_bytes(came[at + 1 : at + 5], "big")
            found.append(came[at + 5 : at + 5 + size])
            at += 5 + size
        return found


def message_of(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("where", ["model server", "gateway"])
@pytest.mark.parametrize(
    "kind", [Inferences(), Reflections()], ids=lambda each: type(each).__name__
)
@pytest.mark.slow
def test_a_caller_that_does_not_read_is_paused_and_loses_nothing(
    ports: dict[str, int], where: str, kind: Inferences | Reflections
) -> None:
    with Peer(ports[where]).begin((INITIAL_WINDOW_SIZE, 0)) as peer:
        stream, data = (
            Stream(peer, kind.path),
            b"".join(message_of(kind.request(each)) for each in range(REQUESTS)),
        )
        assert not stream.send(data, patience_s=1.0)
        assert stream.sent <= MOST_BYTES
        assert not stream.pieces
        peer.send(frame(WINDOW_UPDATE, 0, 1, number(2**31 - 1)))
        assert stream.send(data[stream.sent :], patience_s=30.0, ended=True)
        while not stream.over:
            assert stream.wait(30.0)
        assert [kind.id_of(each) for each in stream.answers] == [
            f"{each}" for each in range(REQUESTS)
        ]

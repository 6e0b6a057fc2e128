"""A client of HTTP/2 for tests: requests of HTTP over the ``h2`` library, one connection for all
of them.
"""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset


@dataclass
class Answer:
    """What came on a stream."""

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Http2Client:
    """Asks over plain HTTP/2, or over TLS with a context that offers it."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), timeout=60)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._answers: dict[int, Answer] = {}
        self._over: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, method: str, path: str, body: Any = None, **fields: str) -> Answer:
        """One request and its answer."""
        return self.wait(self.send(method, path, body, **fields))

    def send(self, method: str, path: str, body: Any = None, **fields: str) -> int:
        """A request; the number of its stream."""
        number = self._h2.get_next_available_stream_id()
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        named = [(name.lower().replace("_", "-"), value) for name, value in fields.items()]
        head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "here"),
            (":path", path),
            *named,
        ]
        self._answers[number] = Answer()
        self._h2.send_headers(number, head, end_stream=not data)
        while (
            data and number not in self._over
        ):  # the answer may come before the whole request is out
            room = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
            if not room:
                self._read()
                continue
            piece, data = data[:room], data[room:]
            self._h2.send_data(number, piece, end_stream=not data)
        self.socket.sendall(self._h2.data_to_send())
        return number

    def wait(self, number: int) -> Answer:
        """The whole answer on a stream."""
        while number not in self._over:
            self._read()
        return self._answers[number]

    def _read(self) -> None:
        self.socket.sendall(self._h2.data_to_send())
        data = self.socket.recv(65_536)
        assert data, "the server hung up"
        for event in self._h2.receive_data(data):
            if isinstance(event, ResponseReceived):
                fields = dict(event.headers)
                answer = self._answers[event.stream_id]
                answer.status, answer.fields = int(fields.pop(":status")), fields
            elif isinstance(event, DataReceived):
                self._answers[event.stream_id].body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded | StreamReset):
                self._over.add(event.stream_id)
        self.socket.sendall(self._h2.data_to_send())

"""HTTP/1.1 as the server speaks it: uvicorn's, within bounds, and patient with what follows a
request.

Nothing is remembered of one request for the next: llhttp parses each.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
# `struct linger` with a time of 0: `close` drops what is not sent yet, and resets the connection.
_NO_FAREWELL = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Bounds:
    """What one connection, and all together, may cost."""

    connections: int
    header_bytes: int
    header_count: int
    header_timeout_s: float
    body_timeout_s: float
    write_timeout_s: float


@lru_cache(1)
def _date_header(second: int) -> list[tuple[bytes, bytes]]:
    """What stands in each answer that is begun in a second of the epoch: its date."""
    return [(b"date", formatdate(second, usegmt=True).encode())]


def version_fault(version: str) -> str | None:
    """Why a version of HTTP is not answered: RFC 9110, section 2.5. Any later 1.x is answered as
    1.1.
    """
    if version.startswith("1."):
        return None
    return f"the request is of HTTP/{version}; HTTP/1.0 and HTTP/1.1 are read"


def host_fault(version: str, fields: list[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with the Host of a request: RFC 9112, section 3.2. It counts beside an
    absolute target, too.
    """
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1:
        return "the request has more than one Host"
    if not hosts:
        return None if version == "1.0" else "the request has no Host"
    if _HOST.fullmatch(hosts[0]) is None:
        host = hosts[0][:100].decode("latin-1")
        return f"Host is {host!r}; a host name or address, with or without a port, is allowed"
    return None


class _Refused(Exception):
    """Stops the parser; what is to be said stands in the protocol."""


class Patient(HttpToolsProtocol):
    """Answers what it has understood before it hangs up on what it has not.

    The original client, with the HTTP library of its time, ends each GET with an empty chunk that
    it did not announce. Those five bytes are no request; the GET before them is one, and it is
    under way.

    Whoever is too slow with the head of a request, stops in the middle of its body, or does not
    read the answer is hung up on; a head that is too large is answered and closed. Where there are
    too many connections, the one that is idle longest gives way; if all are busy, the new one is
    answered and closed.
    """

    bounds: ClassVar[Bounds]
    idle: ClassVar[dict[Patient, None]]
    """Connections without a request, in the order in which they became idle."""
    refused: ClassVar[Callable[[str], None]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser.set_dangerous_leniencies(
            lenient_version=True
        )  # ``version_fault`` judges the version
        self._in_head = False
        self._head_bytes = self._fields_bytes = 0
        self._refusal: tuple[int, str, str] | None = None
        self._read_until: float | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._reading_rings_at = 0.0
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or turn it away."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections and not self._close_idle():
            self._count("connections")
            self._say(503, "unavailable", "the server has too many connections; try again soon")
            return
        self.idle[self] = None
        self._read_within(self.bounds.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks."""
        self.idle.pop(self, None)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; what belongs to a head that is too large is not even parsed."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.header_bytes:
                self._refuse_head()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins: it has to be complete in time."""
        super().on_message_begin()
        self.idle.pop(self, None)
        self._in_head, self._head_bytes, self._fields_bytes = True, 0, 0
        # The clock of a new connection runs on: a first byte must not win time for the head.
        if self._read_until is None:
            self._read_within(self.bounds.header_timeout_s)

    def on_url(self, url: bytes) -> None:
        """Bounded like the rest of the head."""
        super().on_url(url)
        if len(self.url) > self.bounds.header_bytes:
            self._refusal = (
                414,
                "too_large",
                f"the address is longer than {self.bounds.header_bytes} bytes",
            )
            raise _Refused

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count headers and their bytes."""
        super().on_header(name, value)
        # The 4 are the colon, the blank and the line end.
        self._fields_bytes += len(name) + len(value) + 4
        size = len(self.url) + self._fields_bytes
        if len(self.headers) > self.bounds.header_count or size > self.bounds.header_bytes:
            self._refusal = self._too_much()
            raise _Refused

    def on_headers_complete(self) -> None:
        """The head is here; from now on each piece of the body has its time."""
        self._in_head = False
        version = self.parser.get_http_version()
        if (fault := version_fault(version)) is not None:
            self._refusal = (505, "invalid", fault)
            raise _Refused
        if (fault := host_fault(version, self.headers)) is not None:
            self._refusal = (400, "invalid", fault)
            raise _Refused
        self._read_within(self.bounds.body_timeout_s)
        # Before uvicorn's own method, which takes them for this request.
        self.server_state.default_headers = _date_header(int(time.time()))
        super().on_headers_complete()
        if version > "1.1":
            self.scope["http_version"] = "1.1"  # before the app has looked at it

    def on_body(self, body: bytes) -> None:
        """The clock begins anew."""
        super().on_body(body)
        self._read_within(self.bounds.body_timeout_s)

    def on_message_complete(self) -> None:
        """Nothing more is awaited."""
        self._stop_reading_clock()
        super().on_message_complete()
        self._note_idle()

    def on_response_complete(self) -> None:
        """The connection waits for its next request, unless that is here already."""
        super().on_response_complete()
        self._note_idle()

    def pause_writing(self) -> None:
        """The other side does not read: not for ever."""
        super().pause_writing()
        self._writing = self.loop.call_later(
            self.bounds.write_timeout_s, self._hang_up, "slow reader"
        )

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def send_400_response(self, msg: str) -> None:
        """Hang up over bytes that are no request: after the answer that is under way, if there
        is one.
        """
        if self._refusal is not None:
            self._refuse_head()
        else:
            self._answer_and_end(400, "invalid", "this is no HTTP/1.1 request")

    def _note_idle(self) -> None:
        cycle = self.cycle
        if cycle is None or not cycle.response_complete or cycle.more_body or self._in_head:
            return
        if not self.transport.is_closing():
            self.idle[self] = None

    def _close_idle(self) -> bool:
        """Close the connection that is idle longest; false if there is none."""
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        del self.idle[oldest]
        self._count("idle")
        oldest.transport.close()
        return True

    def _refuse_head(self) -> None:
        refusal = self._refusal or self._too_much()
        self._count("large head" if refusal[1] == "too_large" else "bad head")
        self._answer_and_end(*refusal)

    def _answer_and_end(self, status: int, code: str, message: str) -> None:
        """Refuse and close; where an answer is under way only close after it: bytes in its
        middle would be its body.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self._say(status, code, message)

    def _too_much(self) -> tuple[int, str, str]:
        bounds = self.bounds
        return (
            431,
            "too_large",
            f"the headers are more than {bounds.header_count} or {bounds.header_bytes} bytes",
        )

    def _read_within(self, seconds: float) -> None:
        """Begin the clock anew. Its timer stays as it is where it does not ring too late: a timer
        for each piece of each request would be most of what a request costs here.
        """
        self._read_until = until = self.loop.time() + seconds
        if self._reading is not None:
            if self._reading_rings_at <= until:
                return
            self._reading.cancel()
        self._set_reading_timer(until)

    def _set_reading_timer(self, until: float) -> None:
        self._reading_rings_at = until
        self._reading = self.loop.call_at(until, self._look_at_reading_clock)

    def _look_at_reading_clock(self) -> None:
        self._reading = None
        if self._read_until is None:
            return
        if self._read_until > self._reading_rings_at:
            self._set_reading_timer(self._read_until)
        else:
            self._too_slow()

    def _stop_reading_clock(self) -> None:
        self._read_until = None

    def _too_slow(self) -> None:
        self._read_until = None
        if self.flow.read_paused:  # it is us who do not read
            self._read_within(self.bounds.body_timeout_s)
        elif self.cycle is not None and not self.cycle.response_complete:
            self._hang_up("slow body")
        else:
            self._count("slow head")
            self._say(408, "timeout", "the request did not come in time")

    def _hang_up(self, why: str) -> None:
        self._count(why)
        if (
            sock := self.transport.get_extra_info("socket")
        ) is not None:  # else what he does not read stays with us
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_FAREWELL)
        self.transport.abort()

    def _count(self, why: str) -> None:
        type(self).refused(why)

    def _say(self, status: int, code: str, message: str) -> None:
        """A refusal in the form of all others, and the end of the connection."""
        content = json.dumps(
            {"error": True, "code": code, "message": message}, separators=(",", ":")
        ).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + content)
        self.transport.close()


def make_protocol(bounds: Bounds, refused: Callable[[str], None]) -> type[Patient]:
    """The protocol within ``bounds``; ``refused`` is told why a connection was cut."""
    return type(
        "Bounded", (Patient,), {"bounds": bounds, "idle": {}, "refused": staticmethod(refused)}
    )

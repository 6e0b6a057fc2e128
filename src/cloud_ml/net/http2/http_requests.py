"""HTTP without gRPC over HTTP/2: the requests that a service of HTTP/1.1 answers, on streams."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from cloud_ml.net.budget import NO_ROOM
from cloud_ml.net.compression import Inflater, SlicedWork
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.heads import ONCE, Head, HeadFault, negotiate
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.http1.service import Service
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Received
from cloud_ml.net.pieces import Pieces, gather_pieces

M = TypeVar("M")
Fields = list[tuple[bytes, bytes]]

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_TARGET = re.compile(rb"(?:/[\x21-\x7e]*|\*)")
_VALUE = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[ \t]*[\x21-\x7e\x80-\xff])*)?")
_STATUS = re.compile(r"[2-5][0-9]{2}")


class HttpRequest(Generic[M]):
    """What the head of a request means. ``refusal`` is why it is not answered, whatever its
    body.
    """

    __slots__ = ("head", "length", "meaning", "refusal")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.length = 0
        self.meaning: M | None = None
        self.refusal: HeadFault | None = None


def is_grpc(fields: Fields) -> bool:
    """Whether a request is one of gRPC, by the type of its content."""
    return any(
        name == b"content-type" and value.startswith(b"application/grpc") for name, value in fields
    )


class HttpOverHttp2(Generic[M]):
    """Has a service of HTTP/1.1 answer requests of HTTP/2.

    Methods, targets and fields are as strict as there: a gateway writes them into heads of
    HTTP/1.1.
    """

    def __init__(
        self, service: Service[M], limits: Limits, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._service = service
        self._limits = limits
        self._clock = clock
        self._loop = loop

    def understand(self, fields: Fields) -> HttpRequest[M]:
        """What a head means; never raises."""
        pseudo = {name: value for name, value in fields if name[:1] == b":"}
        method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
        if _METHOD.fullmatch(method) is None or _TARGET.fullmatch(target) is None:
            request: HttpRequest[M] = HttpRequest(Head("GET", "/", {}, old=False))
            request.refusal = HeadFault(
                400, "the method is no token, or the path is none of visible ASCII characters"
            )
            return request
        head = Head(method.decode(), target.decode(), {}, old=False)
        request = HttpRequest(head)
        try:
            head.fields.update(_join_fields(fields))
            negotiate(head)
            request.length = _length(head)
        except HeadFault as fault:
            request.refusal = fault
            return request
        request.meaning = self._service.understand(head)
        return request

    def serve(self, answers: Answers, stream: int, request: HttpRequest[M], body: Received) -> None:
        """Answer a whole request, now or later."""
        deadline = self._loop.time() + self._limits.answer_s
        call = Http2Call(
            answers, stream, request.head, deadline, limits=self._limits, clock=self._clock
        )
        if request.refusal is not None:
            call.refuse(request.refusal.status, str(request.refusal))
            return
        assert request.meaning is not None
        meaning = request.meaning
        if not request.head.encoding or not body:
            self._service.serve(call, meaning, self._content((body,)))
            return
        inflater = Inflater(body, request.head.encoding, self._limits.body_bytes)

        def defer(work: Callable[[], None], units: int) -> None:
            if answers.hold_body(stream, inflater.size):
                answers.defer(work, units)
            else:
                call.refuse(503, NO_ROOM)

        def done() -> None:
            self._service.serve(call, meaning, self._content(inflater.parts))

        SlicedWork(
            inflater,
            defer=defer,
            still_needed=call.waits,
            done=done,
            failed=call.fail,
        ).run()

    def _content(self, parts: Sequence[Received]) -> bytes | Pieces:
        """A body as the service takes it."""
        return gather_pieces(parts) if self._limits.in_pieces else b"".join(parts)


def _length(head: Head) -> int:
    """Bytes of the body as the head tells them; 0 where it does not.

    Raises:
        HeadFault: it tells no number.
    """
    text = head.fields.get("content-length", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HeadFault(400, "content-length is not a number")
    return int(text)


def _join_fields(fields: Fields) -> dict[str, str]:
    """Regular fields by name; the host is that of the authority.

    Raises:
        HeadFault: one is there twice that may be there once, or has a value that HTTP/1.1 does not
            have.
    """
    made: dict[str, str] = {}
    for raw_name, raw_value in fields:
        if raw_name[:1] == b":" and raw_name != b":authority":
            continue
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if _VALUE.fullmatch(value) is None:
            raise HeadFault(400, f"the value of {name} is none of visible characters")
        if name == ":authority":
            made["host"] = value
        elif name in made and name != "host":
            if name in ONCE:
                raise HeadFault(400, f"the head has {name} twice")
            # RFC 9113, section 8.2.3: cookies may come in several fields, and are joined by "; ".
            made[name] += ("; " if name == "cookie" else ", ") + value
        else:
            made[name] = value
    return made


class Http2Call(HttpCall):
    """A request on a stream."""

    __slots__ = ("_answers", "_clock", "_limits", "_stream")

    def __init__(
        self,
        answers: Answers,
        stream: int,
        head: Head,
        deadline: float,
        *,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._answers = answers
        self._stream = stream
        self._limits = limits
        self._clock = clock
        self.head = head
        self.deadline = deadline
        self.close = False
        self.done = False
        self.size = 0
        self.answer = b""

    def waits(self) -> bool:
        return not self.done and self._answers.waits(self._stream)

    def within(self, seconds: float) -> None:
        self.deadline += min(0.0, seconds - self._limits.answer_s)

    def open(self) -> bool:
        return self._answers.waits(self._stream)

    def reply(
        self, status: int, fields: bytes, body: bytes | Pieces, *, packed: bool = False
    ) -> None:
        """Answer. A status that is none is a ``KeyError``, as it is over HTTP/1.1."""
        if _STATUS.fullmatch(str(status)) is None:
            raise KeyError(status)
        if self.done:
            return
        if len(body) >= self._limits.compress_bytes and self.head.accepts and not packed:
            self._pack(status, fields, body, self._answers.defer)
            return
        self.done = True
        block = b"".join(
            (
                # RFC 7541, appendix A: entry 8 of the static table is `:status: 200`.
                b"\x88" if status == 200 else frames.literal(":status", str(status)),
                _block_of_lines(self._clock.date),
                _block_of_lines(fields + self.head.answer_fields),
                frames.literal("content-length", str(len(body))),
            )
        )
        self._answers.respond(self._stream, block, b"" if self.head.method == "HEAD" else body)


@lru_cache(256)
def _block_of_lines(lines: bytes) -> bytes:
    """Fields as lines of HTTP/1.1, as a block of HTTP/2."""
    fields: list[Any] = [line.partition(b":") for line in lines.split(b"\r\n") if line]
    return b"".join(frames.field(name.lower(), value.strip(b" \t")) for name, _, value in fields)

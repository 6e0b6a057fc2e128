"""Which method a request calls, and whether it is a gRPC request at all."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from cloud_ml.net.budget import NO_ROOM
from cloud_ml.net.compression import Inflater, SlicedWork
from cloud_ml.net.http2.frames import literal
from cloud_ml.net.http2.grpc_timeout import parse_timeout, wrong_timeout
from cloud_ml.net.http2.http_requests import HttpOverHttp2, HttpRequest, is_grpc
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.errors import BadRequest, ServingError, TooLarge, TooLate, Unsupported
from cloud_ml.serving.grpc.calls import PREFIX, GrpcCall, status_block
from cloud_ml.serving.grpc.streams import MOST_UNREAD, GrpcStream, StreamMethod

Method = Callable[[GrpcCall, Received], None]
"""Answers a call now or later. The message begins at byte 5 of what it is given."""

log = logging.getLogger(__name__)


class Head:
    """What the head of a request means."""

    __slots__ = ("encoding", "http", "method", "refusal", "stream", "timeout")

    def __init__(self) -> None:
        self.method: Method | None = None
        self.stream: StreamMethod | None = None
        self.refusal: bytes | None = None
        self.http: HttpRequest[Any] | None = None
        self.timeout = 0.0
        self.encoding = b"identity"


class GrpcService:
    """Serves the methods of a table: full path to what answers. ``http`` answers what is no gRPC.

    On a stream, messages wait while more than ``unread_bytes`` of its answers lie unread.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        max_bytes: int,
        loop: asyncio.AbstractEventLoop,
        streams: Mapping[str, StreamMethod] | None = None,
        *,
        refusals: Refusals | None = None,
        http: HttpOverHttp2[Any] | None = None,
        unread_bytes: int = MOST_UNREAD,
    ) -> None:
        self._unread_bytes = unread_bytes
        self._methods = {path.encode(): method for path, method in methods.items()}
        self._streams = {path.encode(): method for path, method in (streams or {}).items()}
        self._max_bytes = max_bytes
        self._loop = loop
        self.refusals = refusals or Refusals()
        self._http = http

    def understand(self, fields: list[tuple[bytes, bytes]]) -> Head:
        """See ``net.http2.service.Service``."""
        head, headers = Head(), dict(fields)
        if self._http is not None and not is_grpc(fields):
            head.http = self._http.understand(fields)
            return head
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(
            b"application/grpc"
        ):
            # PROTOCOL-HTTP2.md: 415 for other content types, since a client of HTTP would take the
            # status 200 of a gRPC error for success.
            status = "405" if headers.get(b":method") != b"POST" else "415"
            head.refusal = literal(":status", status)
            return head
        path = headers.get(b":path", b"")
        head.method = self._methods.get(path)
        head.stream = self._streams.get(path)
        if head.method is None and head.stream is None:
            head.refusal = _refusal(
                Unsupported(f"there is no method {path.decode('ascii', 'replace')[:200]}")
            )
        timeout = headers.get(b"grpc-timeout")
        if timeout is not None:
            seconds = parse_timeout(timeout)
            if seconds is None:
                head.refusal = _refusal(BadRequest(wrong_timeout(timeout)))
            else:
                head.timeout = seconds
                if head.timeout <= 0:
                    head.refusal = _refusal(
                        TooLate("the deadline had passed when the request was sent")
                    )
        head.encoding = headers.get(b"grpc-encoding", b"identity")
        if head.encoding not in (b"identity", b"gzip", b"deflate"):
            named = head.encoding.decode("ascii", "replace")[:50]
            head.refusal = _refusal(
                Unsupported(f"grpc-encoding is {named!r}; identity, gzip and deflate are read")
            )
            head.refusal += literal("grpc-accept-encoding", "identity,gzip,deflate")
        return head

    def length(self, head: Head, begun: memoryview) -> int:
        """See ``net.http2.service.Service``."""
        if head.http is not None:
            return head.http.length
        return int.from_bytes(begun[1:5], "big") + 5 if len(begun) >= 5 else 0

    def serve(self, connection: Answers, stream: int, head: Head, body: Received) -> None:
        """See ``net.http2.service.Service``."""
        if head.refusal is not None or head.method is None:
            if head.http is not None and self._http is not None:
                self._http.serve(connection, stream, head.http, body)
            elif head.refusal is None:
                connection.listen(stream, body)
            else:
                connection.answer(stream, head.refusal)
            return
        call = GrpcCall(
            connection, stream, self._loop.time() + head.timeout if head.timeout else 0.0
        )
        try:
            if len(body) < 5 or body[0] or len(body) != PREFIX.unpack_from(body)[1] + 5:
                self._unpack(connection, stream, head, call, body)
                return
            head.method(call, body)
        except ServingError as error:
            self._fail(call, error)
        except Exception as error:
            self._fail_unexpectedly(call, error)

    def _fail(self, call: GrpcCall, error: ServingError) -> None:
        self.refusals.add("grpc", error.grpc)
        call.fail(error)

    def _fail_unexpectedly(self, call: GrpcCall, error: Exception) -> None:
        log.error("a call failed", exc_info=error)
        self._fail(call, ServingError("the server failed; its log says why"))

    def sink(self, connection: Answers, stream: int, head: Head) -> GrpcStream | None:
        """See ``net.http2.service.Service``."""
        if head.stream is None or head.refusal is not None:
            return None
        deadline = self._loop.time() + head.timeout if head.timeout else 0.0
        return GrpcStream(connection, stream, head.stream, deadline, self._unread_bytes)

    def _unpack(
        self, connection: Answers, stream: int, head: Head, call: GrpcCall, body: Received
    ) -> None:
        """Answer a compressed call once its message is decompressed: a long one takes several
        turns.

        Raises:
            BadRequest: It is none, or not one message.
        """
        method = head.method
        if len(body) < 5:
            raise BadRequest("a unary call has one message, this has none")
        compressed, size = PREFIX.unpack_from(body)
        if size != len(body) - 5:
            raise BadRequest(f"the message is {len(body) - 5} bytes, its prefix says {size}")
        if compressed != 1 or head.encoding == b"identity" or method is None:
            raise BadRequest("the message is marked as compressed, and no grpc-encoding says how")
        inflater = Inflater(body[5:], head.encoding.decode(), self._max_bytes)

        def defer(work: Callable[[], None], units: int) -> None:
            if connection.hold_body(stream, inflater.size):
                connection.defer(work, units)
            else:
                self._fail(call, TooLarge(NO_ROOM))

        def done() -> None:
            message = b"".join((PREFIX.pack(0, inflater.size), *inflater.parts))
            try:
                method(call, message)
            except ServingError as error:
                self._fail(call, error)
            except Exception as error:
                self._fail_unexpectedly(call, error)

        SlicedWork(
            inflater,
            defer=defer,
            still_needed=call.waits,
            done=done,
            failed=lambda error: self._fail(call, error),
        ).run()


def _refusal(error: ServingError) -> bytes:
    return status_block(error.grpc, error.message)

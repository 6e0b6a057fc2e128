"""A call on its way through the gateway: tried at one replica after the other where that harms
nobody.
"""

from __future__ import annotations

import abc

from cloud_ml.gateway import answers
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.call import Call, CallService
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import Http2Client
from cloud_ml.gateway.releases import grpc_mark, rest_mark
from cloud_ml.gateway.replica import Replica
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http2.frames import literal
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Received
from cloud_ml.net.pieces import Pieces

_WELL = literal("grpc-status", "0")


class _Http2Call(Call):
    """A call over HTTP/2: a stream of the caller's, and the client to the replica once there is
    one.
    """

    streams = False
    """Whether it is told of the answer piece by piece."""
    __slots__ = ("_client", "_connection", "_head", "_stream")

    def __init__(
        self,
        service: CallService,
        connection: Answers,
        stream: int,
        head: bytes,
        *,
        deadline: float,
        safe: bool,
        release_name: str,
    ) -> None:
        super().__init__(service, deadline, safe=safe, release_name=release_name)
        self._connection = connection
        self._stream = stream
        self._head = head
        self._client: Http2Client | None = None

    def waits(self) -> bool:
        return self._connection.waits(self._stream)

    def send(self, replica: Replica) -> None:
        replica.grpc(self)

    def over(self, client: Http2Client | Http1Client) -> None:
        """There is a connection."""
        assert isinstance(client, Http2Client)
        if self.service.goes(self):
            self._begin(client)

    def cancel(self) -> None:
        if self._client is not None:
            self._client.cancel(self)

    def began(self, head: bytes) -> None:
        """The replica answers; told of what ``streams``."""

    def piece(self, data: bytes) -> None:
        """A piece of the answer; told of what ``streams``."""

    @abc.abstractmethod
    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        """The answer is over."""

    @abc.abstractmethod
    def _begin(self, client: Http2Client) -> None:
        """Ask the replica."""


class GrpcCall(_Http2Call):
    """A call whose answer is passed on when it is whole."""

    __slots__ = ("_body", "_timeout")

    def __init__(
        self,
        service: CallService,
        connection: Answers,
        stream: int,
        head: bytes,
        body: Received,
        *,
        timeout: bytes,
        deadline: float,
        safe: bool,
        release_name: str = "",
    ) -> None:
        super().__init__(
            service,
            connection,
            stream,
            head,
            deadline=deadline,
            safe=safe,
            release_name=release_name,
        )
        self._body = body
        self._timeout = timeout

    def refuse(self, refusal: Refusal) -> None:
        self._connection.answer(self._stream, answers.grpc_block(refusal))

    def _begin(self, client: Http2Client) -> None:
        self._client = client
        head = self._head
        if self._timeout:
            left = (
                # Another attempt has only what earlier ones left of the caller's deadline.
                self._timeout if self.attempts == 1 else b"%dm" % max(1, self.service.left_ms(self))
            )
            head += literal("grpc-timeout", left.decode())
        client.call(head, self._body, self)

    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        # An answer without a message has its status in the head ("Trailers-Only" in gRPC's
        # protocol).
        self.service.done(self, well=_WELL in (trailers or head))
        self._connection.answer(
            self._stream, head + grpc_mark(self.release), (size, body), trailers
        )


class StreamCall(_Http2Call):
    """A call that is passed on piece by piece, both ways: see ``net.http2.stream.Sink``. It is
    tried once.

    A side that sends faster than the other one reads gets no more window until all that waited is
    read. So a window and ``Bounds.stream_unread_bytes`` wait at most, either way.
    """

    __slots__ = ("_begun", "_caller_waits", "_early", "_ended", "_number", "_replica_waits")
    streams = True
    lasting = True

    def __init__(
        self,
        service: CallService,
        connection: Answers,
        stream: int,
        head: bytes,
        *,
        deadline: float,
        release_name: str = "",
    ) -> None:
        super().__init__(
            service,
            connection,
            stream,
            head,
            deadline=deadline,
            safe=False,
            release_name=release_name,
        )
        self._early = bytearray()
        self._ended = False
        self._begun = False
        self._number = 0
        self._caller_waits = self._replica_waits = False

    def refuse(self, refusal: Refusal) -> None:
        self._connection.finish(
            self._stream,
            answers.grpc_trailers(refusal) if self._begun else answers.grpc_block(refusal),
        )

    def _begin(self, client: Http2Client) -> None:
        self._number = client.begin(self._head, self)
        if not self._number:
            self.failed(refused=False)
            return
        self._client = client
        early, self._early = bytes(self._early), bytearray()
        if early or self._ended:
            client.push(self._number, early, ended=self._ended)
        if self._caller_waits:
            client.when_read(self._number, self._resume_caller)

    def data(self, data: bytes, *, ended: bool) -> None:
        """A piece of the caller's."""
        self._ended = ended
        if self._client is not None:
            held = self._client.push(self._number, data, ended=ended)
        else:
            self._early += data
            held = len(self._early)
        if held > self.service.bounds.stream_unread_bytes and not self._caller_waits:
            self._caller_waits = True
            self._connection.pause(self._stream)
            if self._client is not None:
                self._client.when_read(self._number, self._resume_caller)
        if not self._connection.hold(self._stream, held) and self.service.goes(self):
            self.service.done(self)
            self.cancel()
            self.refuse(answers.NO_ROOM)

    def began(self, head: bytes) -> None:
        self._begun = True
        self._connection.begin(self._stream, head + grpc_mark(self.release))

    def piece(self, data: bytes) -> None:
        most_unread = self.service.bounds.stream_unread_bytes
        self._connection.push(self._stream, data, most_unread + self.service.replica_window)
        if not self._replica_waits and self._connection.unread(self._stream) > most_unread:
            assert self._client is not None
            self._replica_waits = True
            self._client.pause(self._number)
            self._connection.when_read(self._stream, self._resume_replica)

    def _resume_caller(self) -> None:
        self._caller_waits = False
        assert self._client is not None
        self._connection.hold(self._stream, self._client.push(self._number, b"", ended=False))
        self._connection.resume(self._stream)

    def _resume_replica(self) -> None:
        self._replica_waits = False
        if self._client is not None:
            self._client.resume(self._number)

    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        self.service.done(self)
        self._connection.finish(
            self._stream, trailers if self._begun else head + grpc_mark(self.release)
        )

    def failed(
        self, *, refused: bool, too_large: bool = False, broken: bool = False, no_room: bool = False
    ) -> None:
        super().failed(
            # Once it has a stream, pieces of the caller may be gone: it cannot be sent again.
            refused=refused and not self._number,
            too_large=too_large,
            broken=broken,
            no_room=no_room,
        )


class RestCall(Call):
    """A call over HTTP/1.1."""

    __slots__ = ("_body", "_call", "_client", "_head")

    def __init__(
        self,
        service: CallService,
        call: HttpCall,
        head: bytes,
        body: bytes | Pieces,
        *,
        deadline: float,
        safe: bool,
        release_name: str = "",
    ) -> None:
        super().__init__(service, deadline, safe=safe, release_name=release_name)
        self._call = call
        self._head = head
        self._body = body
        self._client: Http1Client | None = None

    def waits(self) -> bool:
        return self._call.waits()

    def refuse(self, refusal: Refusal) -> None:
        refuse(self._call, refusal)

    def send(self, replica: Replica) -> None:
        replica.http(self)

    def over(self, client: Http2Client | Http1Client) -> None:
        """There is a connection."""
        assert isinstance(client, Http1Client)
        if not self.service.goes(self):
            client.close()
            return
        self._client = client
        client.call(self._head, self._body, self)

    def cancel(self) -> None:
        if self._client is not None:
            self._client.cancel()

    def answered(self, status: int, fields: bytes, body: bytes | Pieces) -> None:
        """The answer is whole."""
        self.service.done(self, well=status < 400)
        reply(self._call, status, fields + rest_mark(self.release), body)


def refuse(call: HttpCall, refusal: Refusal) -> None:
    """Answer with an error of the gateway's own."""
    reply(call, *answers.rest_answer(refusal))


def reply(call: HttpCall, status: int, fields: bytes, body: bytes | Pieces) -> None:
    """Pass an answer on; a status that no list has is the replica's mistake."""
    try:
        call.reply(status, fields, body)
    except KeyError:
        refuse(call, answers.BROKEN)

"""Triton's ModelStreamInfer: inferences on one stream, answered in the order of the requests."""

import logging
from collections import deque

from google.protobuf.message import DecodeError

from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.codecs import wire
from cloud_ml.serving.errors import Overloaded, ServingError
from cloud_ml.serving.grpc.calls import PREFIX
from cloud_ml.serving.grpc.infer import Infer
from cloud_ml.serving.grpc.streams import GrpcStream, Talk
from cloud_ml.serving.protos import message

log = logging.getLogger(__name__)

MOST_PENDING = 1_000
"""Requests of one stream that may wait for their answers; further ones are answered with an
error at once.
"""
_ERROR_MESSAGE, _INFER_RESPONSE = 1, 2


class StreamInfer:
    """Answers ``ModelStreamInfer``. An error of a request is a message of the stream, which goes
    on.

    ``most_bytes`` bounds a message of a caller, all requests of a stream that wait, and answers
    that lie unread.
    """

    def __init__(self, infer: Infer, most_bytes: int) -> None:
        self.infer = infer
        self.most_bytes = most_bytes
        self.refusals = Refusals()

    def begin(self, stream: GrpcStream) -> Talk:
        """See ``streams.StreamMethod``."""
        return _InferTalk(self, stream)


class _InferTalk(Talk):
    def __init__(self, method: StreamInfer, stream: GrpcStream) -> None:
        self.longest = method.most_bytes
        self.unread_bytes = method.most_bytes
        self._method = method
        self._stream = stream
        self._pending: deque[_StreamedCall] = deque()
        self._pending_bytes = 0
        self._ended = False

    def receive(self, body: bytes) -> None:
        call = _StreamedCall(self, self._stream, body)
        self._pending.append(call)
        self._pending_bytes += len(body)
        try:
            self._check_room()
            self._method.infer.infer(call, PREFIX.pack(0, len(body)) + body)
        except ServingError as error:
            self._method.refusals.add("grpc", error.grpc)
            call.fail(error)
        except Exception:
            self._method.refusals.add("grpc", ServingError.grpc)
            log.exception("a request of a stream failed")
            call.fail(ServingError("the server failed; its log says why"))

    def _check_room(self) -> None:
        """Refuse the request that was added last where too many wait, or too many bytes of them."""
        waiting = len(self._pending) - 1
        if waiting >= MOST_PENDING or (waiting and self._pending_bytes > 2 * self.longest):
            raise Overloaded(
                f"{waiting} requests of this stream wait for their answers, {self._pending_bytes} "
                f"bytes with this one; allowed: {MOST_PENDING} and {2 * self.longest}"
            )

    def ended(self) -> None:
        self._ended = True
        self.answered()

    def answered(self) -> None:
        """Send what has its answer, up to the first request that has none."""
        pending = self._pending
        while pending and pending[0].answer:
            call = pending.popleft()
            self._pending_bytes -= call.size
            self._stream.send(call.answer)
        if self._ended and not pending:
            self._stream.finish()


class _StreamedCall:
    """One request of a stream: what ``GrpcCall`` is where there is one request only."""

    protocol = "grpc"
    __slots__ = ("_body", "_stream", "_talk", "answer", "deadline", "size")

    def __init__(self, talk: _InferTalk, stream: GrpcStream, body: bytes) -> None:
        self._talk = talk
        self._stream = stream
        self._body = body
        self.size = len(body)
        self.deadline = stream.deadline
        self.answer = b""

    def waits(self) -> bool:
        """Whether the caller still waits."""
        return not self.answer and self._stream.waits()

    def reply(self, parts: tuple[bytes, ...], size: int) -> None:
        """Answer with a ``ModelInferResponse``, given in pieces."""
        lead = wire.key(_INFER_RESPONSE, wire.DELIMITED) + wire.varint(size)
        self._answer(b"".join((lead, *parts)))

    def fail(self, error: ServingError) -> None:
        """Answer with an error, and with the id of the request, by which clients tell whose it
        is.
        """
        text = error.message.encode("utf-8", "replace")
        named = message("inference.ModelInferResponse")(id=self._id())
        self._answer(
            wire.encode_delimited(_ERROR_MESSAGE, text)
            + wire.encode_delimited(_INFER_RESPONSE, named.SerializeToString())
        )

    def _answer(self, answer: bytes) -> None:
        if not self.answer:
            self.answer = answer
            self._body = b""
            self._talk.answered()

    def _id(self) -> str:
        try:
            return str(message("inference.ModelInferRequest").FromString(self._body).id)
        except DecodeError:
            return ""

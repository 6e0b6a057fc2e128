"""What callers speak with: gRPC over HTTP/2, and HTTP/1.1, on the port of a service."""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

from cloud_ml.gateway import answers, model_list
from cloud_ml.gateway.access import METADATA, PREDICT, WRITE, bearer
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.calls import GrpcCall, RestCall, StreamCall, refuse
from cloud_ml.gateway.releases import HEADER
from cloud_ml.gateway.services import Service
from cloud_ml.net.http1.calls import JSON, HttpCall
from cloud_ml.net.http1.cors import PREFLIGHT, Cors
from cloud_ml.net.http1.heads import Head
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.grpc_timeout import parse_timeout, wrong_timeout
from cloud_ml.net.http2.http_requests import HttpOverHttp2, HttpRequest, is_grpc
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Received, Sink
from cloud_ml.net.pieces import Pieces

_RELEASE = HEADER.encode()
# The replica runs a tenant's code: it gets no token.
_KEPT_BACK = {
    b"authorization",
    b"grpc-timeout",
    b":authority",
    b"host",
    b"content-length",
    _RELEASE,
}
UNSAFE = (
    b"/tensorflow.serving.ModelService/HandleReloadConfigRequest",
    b"/inference.GRPCInferenceService/RepositoryModelLoad",
    b"/inference.GRPCInferenceService/RepositoryModelUnload",
    b"/inference.model_repository.ModelRepositoryService/RepositoryModelLoad",
    b"/inference.model_repository.ModelRepositoryService/RepositoryModelUnload",
)
"""Methods that are not repeated once a replica may have begun: they change what is served."""
STREAMS = (
    b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    b"/grpc.health.v1.Health/Watch",
    b"/inference.GRPCInferenceService/ModelStreamInfer",
)
"""Methods that are passed on piece by piece."""
HEALTH = (
    b"/grpc.health.v1.Health/Check",
    b"/inference.GRPCInferenceService/ServerLive",
    b"/inference.GRPCInferenceService/ServerReady",
)
"""Methods of probes: see ``gateway.open_health``. A Watch is none, since it stays open."""
HEALTH_PATHS = ("/v2/health/live", "/v2/health/ready", "/ping")
"""Paths of probes."""
_PREDICTS = (
    b"/tensorflow.serving.PredictionService/Predict",
    b"/tensorflow.serving.PredictionService/Classify",
    b"/tensorflow.serving.PredictionService/Regress",
    b"/tensorflow.serving.PredictionService/MultiInference",
    b"/inference.GRPCInferenceService/ModelInfer",
    b"/inference.GRPCInferenceService/ModelStreamInfer",
)
"""Methods that run a model. Whatever is neither here nor in ``UNSAFE`` only tells of it."""
_INDEX_PATH = "/v2/repository/index"
_PREDICT_PATH = re.compile(
    r"/v1/.*:(predict|classify|regress)|/v2/models/.*/infer|/invocations", re.IGNORECASE
)
_UNSAFE_PATH = re.compile(r"/v2/repository/.*/(load|unload)$")
# Among them are fields of what the gateway does itself: it reads packed bodies and packs answers.
_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "authorization",
    "proxy-authorization",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "host",
    HEADER,
}


class GrpcHead:
    """What the head of a request over HTTP/2 means; ``block`` is what the replica gets of it."""

    __slots__ = (
        "action",
        "block",
        "health",
        "http",
        "refusal",
        "release_name",
        "safe",
        "streams",
        "timeout",
        "timeout_s",
        "token",
    )

    def __init__(self) -> None:
        self.http: HttpRequest[RestHead] | None = None  # of a request that is no gRPC
        self.action = METADATA
        self.release_name = ""
        self.block = b""
        self.token = ""
        self.timeout = b""
        self.timeout_s = 0.0
        self.safe = True
        self.streams = False
        self.health = False
        self.refusal: Refusal | None = None


class GrpcFront:
    """Takes requests over HTTP/2; see ``net.http2.service.Service``. ``http`` takes those that
    are no gRPC.
    """

    def __init__(
        self, service: Service, loop: asyncio.AbstractEventLoop, http: HttpOverHttp2[RestHead]
    ) -> None:
        self._service = service
        self._loop = loop
        self._http = http

    def understand(self, fields: list[tuple[bytes, bytes]]) -> GrpcHead:
        """See ``net.http2.service.Service``. What a head means is remembered, whether its token
        opens is not.
        """
        head, parts = GrpcHead(), []
        if not is_grpc(fields):
            head.http = self._http.understand(fields)
            return head
        for name, value in fields:
            if name == b"authorization":
                head.token = bearer(value.decode("latin-1"))
            elif name == b"grpc-timeout":
                seconds = parse_timeout(value)
                if seconds is None:
                    head.refusal = Refusal(3, 400, wrong_timeout(value))
                    continue
                head.timeout, head.timeout_s = value, seconds
                if head.timeout_s <= 0:
                    head.refusal = answers.TOO_LATE
            elif name == _RELEASE:
                head.release_name = value.decode("latin-1")
            elif name == b":path":
                head.safe = value not in UNSAFE
                head.action = _action_of_method(value)
                head.streams = value in STREAMS
                head.health = value in HEALTH
            if name not in _KEPT_BACK:
                parts.append(frames.field(name, value))
            elif name == b":authority":
                parts.append(frames.field(name, b"replica"))
        head.block = b"".join(parts)
        return head

    def refused(self, head: GrpcHead) -> bool:
        """Whether ``serve`` refuses, whatever the body: see ``net.http2.stream.Limits``."""
        if head.http is not None:
            return head.http.meaning is None or _refused(self._service, head.http.meaning)
        return self._refusal(head) is not None

    def _refusal(self, head: GrpcHead) -> Refusal | None:
        return head.refusal or self._service.refusal(head.token, head.action, health=head.health)

    def length(self, head: GrpcHead, begun: memoryview) -> int:
        """See ``net.http2.service.Service``: a message has its length before it, and a byte
        before that.
        """
        if head.http is not None:
            return head.http.length
        return int.from_bytes(begun[1:5], "big") + 5 if len(begun) >= 5 else 0

    def serve(self, connection: Answers, stream: int, head: GrpcHead, body: Received) -> None:
        """See ``net.http2.service.Service``."""
        if head.http is not None:
            self._http.serve(connection, stream, head.http, body)
            return
        service = self._service
        refusal = self._refusal(head)
        if refusal is not None:
            connection.answer(stream, answers.grpc_block(refusal))
            return
        if head.streams:
            connection.listen(stream, body)
            return
        deadline = self._loop.time() + (head.timeout_s or service.timeout_s)
        service.take(
            GrpcCall(
                service, connection, stream, head.block, body,
                timeout=head.timeout, deadline=deadline, safe=head.safe,
                release_name=head.release_name,
            )
        )  # fmt: skip

    def sink(self, connection: Answers, stream: int, head: GrpcHead) -> Sink | None:
        """See ``net.http2.service.Service``."""
        if not head.streams:
            return None
        refusal = self._refusal(head)
        if refusal is not None:
            return _Refused(connection, stream, refusal)
        deadline = self._loop.time() + head.timeout_s if head.timeout_s else math.inf
        block = head.block + (frames.field(b"grpc-timeout", head.timeout) if head.timeout else b"")
        call = StreamCall(
            self._service,
            connection,
            stream,
            block,
            deadline=deadline,
            release_name=head.release_name,
        )
        self._service.take(call)
        return call


class _Refused:
    """Answers a stream that may not be, without waiting for its end: callers of streams wait for
    answers first.
    """

    def __init__(self, connection: Answers, stream: int, refusal: Refusal) -> None:
        self._connection = connection
        self._stream = stream
        self._refusal = refusal

    def data(self, data: bytes, *, ended: bool) -> None:
        """What came does not matter."""
        self._connection.finish(self._stream, answers.grpc_block(self._refusal))


class RestHead:
    """What the head of a request over HTTP/1.1 means; ``lines`` is what the replica gets of it."""

    __slots__ = (
        "action",
        "has_body",
        "health",
        "lines",
        "lists",
        "preflight",
        "release_name",
        "safe",
        "token",
    )

    def __init__(
        self,
        token: str,
        lines: bytes,
        *,
        action: str,
        safe: bool,
        has_body: bool,
        release_name: str,
    ) -> None:
        self.action = action
        self.release_name = release_name
        self.token = token
        self.lines = lines
        self.safe = safe
        self.has_body = has_body
        self.health = False
        self.preflight = False
        self.lists = False


class RestFront:
    """Takes requests over HTTP/1.1; see ``net.http1.service.Service``. ``cors``: pages that
    may call.
    """

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, cors: Cors) -> None:
        self._service = service
        self._loop = loop
        self._cors = cors

    def understand(self, head: Head) -> RestHead:
        """See ``net.http1.service.Service``. What a head means is remembered, whether its
        token opens is not.
        """
        method = "GET" if head.method == "HEAD" else head.method  # the front leaves the body out
        lines = [f"{method} {head.target} HTTP/1.1\r\nHost: replica\r\n"]
        listed = {each.strip().lower() for each in head.fields.get("connection", "").split(",")}
        lines += [
            f"{name}: {value}\r\n"
            for name, value in head.fields.items()
            if name not in _HOP_BY_HOP and name not in listed
        ]
        path = head.target.partition("?")[0]
        meaning = RestHead(
            bearer(head.fields.get("authorization", "")),
            "".join(lines).encode("latin-1"),
            action=_action_of_path(method, path),
            safe=_UNSAFE_PATH.search(path) is None,
            has_body=method not in ("GET", "OPTIONS"),
            release_name=head.fields.get(HEADER, ""),
        )
        head.answer_fields = self._cors.fields(head)
        meaning.health = method == "GET" and path in HEALTH_PATHS
        meaning.preflight = self._cors.is_preflight(head)
        meaning.lists = method == "GET" and path == model_list.PATH
        return meaning

    def refused(self, meaning: RestHead) -> bool:
        """Whether ``serve`` refuses, whatever the body: see ``net.http1.limits.Limits``."""
        return _refused(self._service, meaning)

    def serve(self, call: HttpCall, meaning: RestHead, body: bytes | Pieces) -> None:
        """See ``net.http1.service.Service``."""
        if meaning.preflight:
            call.reply(200, PREFLIGHT, b"")
            return
        service = self._service
        if meaning.lists:
            _list_models(service, call, meaning)
            return
        refusal = service.refusal(meaning.token, meaning.action, health=meaning.health)
        if refusal is not None:
            refuse(call, refusal)
            return
        # RFC 9110, section 8.6: a method with a body tells its length, also that of an empty one.
        length = b"Content-Length: %d\r\n\r\n" % len(body) if body or meaning.has_body else b"\r\n"
        deadline = self._loop.time() + service.timeout_s
        service.take(
            RestCall(
                service, call, meaning.lines + length, body,
                deadline=deadline, safe=meaning.safe, release_name=meaning.release_name,
            )
        )  # fmt: skip


def _list_models(service: Service, call: HttpCall, meaning: RestHead) -> None:
    refusal = service.models.refusal(meaning.token)
    if refusal is not None:
        refuse(call, refusal)
        return
    call.reply(200, JSON + b"Cache-Control: no-store\r\n", service.models.body(meaning.token))


def no_room(stream: int) -> tuple[bytes, ...]:
    """The frames that answer a request for which all bodies together leave no room."""
    return (
        frames.frame(
            frames.HEADERS, 0x5, stream, answers.grpc_block(answers.NO_ROOM, http_status=True)
        ),
    )


def _refused(service: Service, meaning: RestHead) -> bool:
    """Whether a request is refused by its head."""
    if meaning.lists:
        return service.models.refusal(meaning.token) is not None
    return (
        not meaning.preflight
        and service.refusal(meaning.token, meaning.action, health=meaning.health) is not None
    )


def _action_of_method(method: bytes) -> str:
    if method in UNSAFE:
        return WRITE
    return PREDICT if method in _PREDICTS else METADATA


def _action_of_path(method: str, path: str) -> str:
    """What a request does. A path that is not known to run a model, perhaps since it is encoded,
    needs the most.
    """
    if method in ("GET", "OPTIONS") or path == _INDEX_PATH:
        return METADATA
    return PREDICT if _PREDICT_PATH.fullmatch(path) else WRITE


def grpc_too_large(limit: int) -> Any:
    """Makes the frames that answer a request over its bound."""
    block = answers.grpc_block(
        Refusal(8, 413, f"a request of more than {limit} bytes"), http_status=True
    )
    return lambda stream: (frames.frame(frames.HEADERS, 0x5, stream, block),)

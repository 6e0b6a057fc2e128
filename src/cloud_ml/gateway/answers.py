"""What the gateway answers itself, as gRPC and HTTP say it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from cloud_ml.net.http2.frames import literal

_LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no: the gRPC status code, the HTTP status, a sentence, and further lines
    of an HTTP head.
    """

    grpc: int
    http: int
    message: str
    fields: bytes = b""


MISSING = Refusal(
    16,
    401,
    "missing bearer token: send Authorization: Bearer TOKEN; `cloudml models token` makes one",
    b'WWW-Authenticate: Bearer realm="cloudml"\r\n',
)
WRONG = Refusal(
    16, 401, "the token is wrong or has expired, or its key does not work any more",
    b'WWW-Authenticate: Bearer realm="cloudml", error="invalid_token"\r\n',
)  # fmt: skip
FOREIGN = Refusal(7, 403, "the token is not of a key of this service's organisation")
NARROW = Refusal(7, 403, "the token is for another service than this one")
# Without Retry-After: clients would wait for what comes back only if somebody starts it.
STOPPED = Refusal(14, 503, "the service is stopped")
NOBODY = Refusal(14, 503, "no replica of the service answers now", b"Retry-After: 2\r\n")
LOST = Refusal(14, 503, "the replica ended while it worked on this", b"Retry-After: 1\r\n")
BROKEN = Refusal(14, 502, "the replica's answer cannot be understood")
TOO_MANY = Refusal(8, 429, "too many calls to this service are under way", b"Retry-After: 1\r\n")
NO_ROOM = Refusal(
    8, 503, "too many requests are under way; send this one again later", b"Retry-After: 1\r\n"
)
TOO_LATE = Refusal(4, 504, "the deadline passed before there was an answer")
TOO_LARGE = Refusal(8, 502, "the replica's answer is larger than the gateway passes on")


def deleted(service: str) -> Refusal:
    """The answer for a service (``name/version``) that is being deleted, as the server says it
    of one that it does not know.
    """
    name, _, version = service.partition("/")
    return Refusal(5, 404, f"there is no model service {name} {version}: it is being deleted")


@lru_cache(64)
def grpc_block(refusal: Refusal, *, http_status: bool = False) -> bytes:
    """The only block of headers of an answer without a message ("trailers only").

    ``http_status`` is for an answer that may go to a client of HTTP as well.
    """
    # Over gRPC the HTTP status is 200 for errors, too: the field `grpc-status` tells them apart.
    status = literal(":status", str(refusal.http)) if http_status else b"\x88"
    return status + literal("content-type", "application/grpc") + grpc_trailers(refusal)


def grpc_trailers(refusal: Refusal) -> bytes:
    """The fields that end an answer which has begun."""
    # gRPC's PROTOCOL-HTTP2.md: all but printable ASCII is percent-encoded, and `%` itself.
    text = quote(refusal.message[:_LONGEST_MESSAGE], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return literal("grpc-status", str(refusal.grpc)) + literal("grpc-message", text)


@lru_cache(64)
def document(refusal: Refusal) -> bytes:
    """The body of an answer over HTTP, as the model server writes its own."""
    return json.dumps({"error": refusal.message}, ensure_ascii=False).encode()


def rest_answer(refusal: Refusal) -> tuple[int, bytes, bytes]:
    """Status, lines of the head and body of an answer over HTTP/1.1."""
    return refusal.http, b"Content-Type: application/json\r\n" + refusal.fields, document(refusal)

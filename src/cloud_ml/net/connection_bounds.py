"""Bounds of a caller's connection that the model server and the gateway have settings for."""

from dataclasses import dataclass

from cloud_ml.net.http1.limits import PASSED_OVER
from cloud_ml.net.http2.headers import EMPTY_FRAMES, KEPT_BYTES
from cloud_ml.net.loop_iteration import TURN_UNITS


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The defaults suit servers and gateways that anybody reaches."""

    turn_units: int = TURN_UNITS
    """Work for all callers in a turn of the event loop, in about microseconds. A light request
    is always read.
    """
    dropped_body_bytes: int = PASSED_OVER
    """HTTP/1.1: the largest body that is read and dropped behind a head over its bound. A larger
    one ends the connection.
    """
    head_bytes: int = 16_384
    """Largest head of a request."""
    empty_frames: int = EMPTY_FRAMES
    """HTTP/2: most empty CONTINUATION frames of a head."""
    kept_head_bytes: int = KEPT_BYTES
    """HTTP/2: most bytes of the heads that a connection recognises."""
    http1_head_s: int = 10
    """HTTP/1.1: how long a head that has begun may take to become whole."""
    http1_body_s: int = 20
    """HTTP/1.1: how long a body may take, and a second more for each 16 KiB of it that came."""
    http1_idle_s: int = 300
    """HTTP/1.1: how long a connection may ask nothing."""
    http1_pipelined: int = 64
    """HTTP/1.1: requests of a connection under way at once. More are read when one is answered."""
    http1_linger_s: int = 2
    """HTTP/1.1: how long the rest of a request is read after an answer that ends the connection."""
    greeting_s: int = 30
    """How long a connection may say nothing at all."""
    http2_streams: int = 1_000
    """HTTP/2: most requests under way on one connection."""
    http2_window_bytes: int = 8 << 20
    """HTTP/2: bytes that a caller may send before they are read, for each request and for each
    connection.
    """
    http2_head_s: int = 30
    """HTTP/2: how long a head or a frame that has begun may take to become whole."""
    http2_body_s: int = 120
    """HTTP/2: how long a request may take to become whole."""
    http2_unread_s: int = 60
    """HTTP/2: how long an answer may lie unread without progress."""
    http2_idle_s: int = 3_600
    """HTTP/2: how long a connection may ask nothing."""
    stream_unread_bytes: int = 262_144
    """Streams of messages over gRPC: bytes of unread answers from which on further messages of
    the caller wait.
    """

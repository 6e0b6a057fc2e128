"""Bounds of a caller's connection that the model server and the gateway have settings for."""

from dataclasses import dataclass

from cloud_ml.serving.http1.limits import PASSED_OVER
from cloud_ml.serving.http2.headers import EMPTY_FRAMES, KEPT_BYTES
from cloud_ml.serving.turns import TURN_UNITS


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The defaults suit servers and gateways that anybody reaches."""

    turn_units: int = TURN_UNITS
    """Work for all callers in a turn of the event loop, in about microseconds. A light request is always read."""
    dropped_body_bytes: int = PASSED_OVER
    """HTTP/1.1: the largest body that is read and dropped behind a head over its bound. A larger one ends the
    connection."""
    empty_frames: int = EMPTY_FRAMES
    """HTTP/2: most empty CONTINUATION frames of a head."""
    kept_head_bytes: int = KEPT_BYTES
    """HTTP/2: most bytes of the heads that a connection recognises."""

"""The head of an answer over HTTP/2, as it is passed on."""

from __future__ import annotations

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.headers import Fields, malformed_field

# RFC 9113, section 8.2.2 forbids fields of the connection in HTTP/2. The last one is the gateway's
# own.
_DROPPED = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    b"cloudml-release",
}


def translate_head(fields: Fields, most: int) -> tuple[int, bytes]:
    """The status, 0 for trailers, and a block to pass on, which needs no table.

    Raises:
        ConnectionFault: Something in it may not stand in an answer.
    """
    if len(fields) > most:
        raise ConnectionFault(frames.ENHANCE_YOUR_CALM, f"a head of {len(fields)} fields")
    status, made = 0, []
    for at, (name, value) in enumerate(fields):
        if name == b":status" and at == 0 and len(value) == 3 and value.isdigit():
            status = int(value)
            made.append(b"\x88" if status == 200 else frames.field(name, value))
        elif malformed_field(name, value):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a field that may not stand in an answer")
        elif name not in _DROPPED:
            made.append(frames.field(name, value))
    if 0 < status < 100 or status > 599:
        raise ConnectionFault(frames.PROTOCOL_ERROR, f"status {status}")
    return status, b"".join(made)

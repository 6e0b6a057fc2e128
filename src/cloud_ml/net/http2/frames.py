"""Frames as bytes: RFC 9113, sections 4 and 6."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

# Section 7
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = (
    range(6)
)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = (
    range(6, 12)
)

# Section 6.5.2
(
    HEADER_TABLE_SIZE,
    ENABLE_PUSH,
    MAX_CONCURRENT_STREAMS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
) = range(1, 7)

LARGEST_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384

SMALL = 65_536
"""Bytes of a frame that is no data."""

HEAD = struct.Struct(">HBBBL")
"""Length (two bytes and one), type, flags, stream."""
NUMBER = struct.Struct(">L")
SETTING = struct.Struct(">HL")


class ConnectionFault(Exception):
    """The peer broke the protocol so that the connection cannot go on; ``code`` is RFC 9113's."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class StreamFault(ConnectionFault):
    """The peer broke the protocol on one stream, which can end alone; where nobody ends it, the
    connection does.
    """


def bound(size: int) -> None:
    """See that a frame that is no data is not long; before it has come whole, so that it is not
    kept until then.

    Raises:
        ConnectionFault: where it is.
    """
    if size > SMALL:
        raise ConnectionFault(ENHANCE_YOUR_CALM, f"a frame of {size} bytes that is no data")


def frame(kind: int, flags: int, stream: int, payload: bytes | bytearray = b"") -> bytes:
    """One frame."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(
        SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values.items())
    )


def window_update(stream: int, more: int) -> bytes:
    """A WINDOW_UPDATE frame for a stream, or for the connection with 0."""
    return frame(WINDOW_UPDATE, 0, stream, NUMBER.pack(more))


def reset(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, NUMBER.pack(code))


def goaway(last: int, code: int, why: str = "") -> bytes:
    """A GOAWAY frame; ``why`` is for people who look at the wire."""
    return frame(GOAWAY, 0, 0, NUMBER.pack(last) + NUMBER.pack(code) + why.encode()[:128])


def strip_padding(block: bytes, flags: int) -> bytes:
    """A HEADERS payload without its padding and priority: section 6.2.

    Raises:
        ConnectionFault: where there is less than that.
    """
    start, pad = 0, 0
    if flags & PADDED:
        if not block:
            raise ConnectionFault(FRAME_SIZE_ERROR, "HEADERS")
        start, pad = 1, block[0]
    if flags & WITH_PRIORITY:
        start += 5
    if start + pad > len(block):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than frame")
    return block[start : len(block) - pad]


def literal(name: str, value: str) -> bytes:
    """A header field that no table keeps: RFC 7541, section 6.2.2, without Huffman code."""
    return field(name.encode("ascii"), value.encode("ascii"))


def field(name: bytes, value: bytes) -> bytes:
    """The same of bytes, as they came."""
    return b"\x00" + string(name) + string(value)


def string(value: bytes) -> bytes:
    """A string of a header block, without Huffman code: RFC 7541, section 5.2."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, size = len(value) - 127, bytearray([127])
    while rest >= 128:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    size.append(rest)
    return bytes(size) + value

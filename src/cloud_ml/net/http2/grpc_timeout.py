"""The header ``grpc-timeout``: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md."""

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# The protocol's own bound: "at most 8 digits".
_MOST_DIGITS = 8


def parse_timeout(value: bytes) -> float | None:
    """Seconds, 0 for a deadline that has passed; ``None`` where the value is wrong."""
    unit, digits = _UNITS.get(value[-1:]), value[:-1]
    if unit is None or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits) * unit


def wrong_timeout(value: bytes) -> str:
    """The sentence that refuses a value."""
    return f"grpc-timeout is {value.decode('ascii', 'replace')!r}"

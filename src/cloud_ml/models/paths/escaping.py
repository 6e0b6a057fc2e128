"""Names of files that may be no text, for people: written with escapes, and read back."""

from __future__ import annotations

import re

from cloud_ml.errors import InvalidRequest

_LONGEST = 100
_ESCAPE = re.compile(
    r"\\(?:(?P<sign>[\\nrt])|x(?P<byte>[0-9a-f]{2})|u(?P<short>[0-9a-f]{4})|U(?P<long>[0-9a-f]{8})|)"
)
_SIGNS = {"\\": b"\\", "n": b"\n", "r": b"\r", "t": b"\t"}


def escape_path(path: bytes) -> str:
    r"""A path without bytes that are no text or no printable sign, such as ``a\xff`` and ``a\n``; at most its end."""
    text = escaped_whole(path)
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def escaped_whole(path: bytes) -> str:
    """The same of a whole path, so that ``unescaped`` leads back to it."""
    return "".join(_escape_sign(each) for each in path.decode("utf-8", "surrogateescape"))


def unescape_path(text: str) -> bytes:
    """The path of an escaped text.

    Raises:
        InvalidRequest: A backslash begins no escape, or the text names no character.
    """
    found, end = b"", 0
    try:
        for escape in _ESCAPE.finditer(text):
            found += text[end : escape.start()].encode() + _read(escape)
            end = escape.end()
        return found + text[end:].encode()
    except (ValueError, OverflowError):
        raise InvalidRequest(
            "the name is not written as `cloudml storage ls` prints it",
            field="name",
            value=ascii(text[:200]),
            allowed=r"\\ for a backslash, \xff for a byte, \n for a line break",
        ) from None


def _read(escape: re.Match[str]) -> bytes:
    if escape["sign"]:
        return _SIGNS[escape["sign"]]
    if escape["byte"]:
        return bytes([int(escape["byte"], 16)])
    return chr(int(escape["short"] or escape["long"] or "", 16)).encode()


def _escape_sign(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":
        return f"\\x{ord(sign) - 0xDC00:02x}"
    if sign == "\\":
        return "\\\\"
    if "\x80" <= sign <= "\xff" and not sign.isprintable():
        return f"\\u{ord(sign):04x}"  # \x85 is a byte that is no text
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")

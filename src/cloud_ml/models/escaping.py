"""Names of files that may be no text, for people."""

from __future__ import annotations

_LONGEST = 100


def escaped(path: bytes) -> str:
    r"""A path without bytes that are no text or no printable sign, such as ``a\xff`` and ``a\n``; at most its end."""
    text = "".join(_escaped(each) for each in path.decode("utf-8", "surrogateescape"))
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def _escaped(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":
        return f"\\x{ord(sign) - 0xDC00:02x}"
    if sign == "\\":
        return "\\\\"
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")

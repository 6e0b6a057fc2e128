"""Text files as editors and shells of any system write them.

Windows PowerShell writes ``pip freeze > requirements.txt`` in UTF-16, and some editors begin UTF-8
with a byte order mark. ``pip`` reads both, so people expect it.
"""

from __future__ import annotations

import codecs

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode_text(content: bytes, errors: str = "strict") -> str:
    """The text of ``content`` without its byte order mark, its lines ended as on Unix.

    Without a mark it is UTF-8.

    Args:
        content: The whole file.
        errors: How ``bytes.decode`` treats bytes that are not text.

    Raises:
        UnicodeDecodeError: It is not text in that encoding, and ``errors`` is ``strict``.
    """
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    return content.decode(encoding, errors).replace("\r\n", "\n")

"""What can be wrong with what the other side of a connection says, for both faces.

The standard library has such errors in ``http.client``, whose import costs the command line a sixth
of its start.
"""

from __future__ import annotations


class NotHttp(Exception):
    """What came is no HTTP/1.1, or more of it than anybody needs."""


class BadStatusLine(NotHttp):
    """The first line of an answer is none. ``line`` is its beginning."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


class CutShort(NotHttp):
    """The connection ended before the answer did."""


class CallLost(Exception):
    """The server ended a call without an answer."""


class AnswerTooLarge(Exception):
    """An answer is larger than its reader takes."""

"""The head of a request: RFC 9112, sections 2 to 6, read strictly."""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

H = TypeVar("H")

CHUNKED = -1
ELSEWHERE = -2
"""The length of a body is not in its ``Head``, which stands for heads with any length."""
REMEMBERED = 1024
"""Heads kept for all connections, of each kind; when there are more, all are forgotten."""
LONGEST = 4096
"""Bytes of a head that is kept: what strangers send must not fill memory."""

MOST_FIELDS = 100

# RFC 9112, section 3 allows readers to accept other white space, and warns: readers that split the
# line differently can be used for request smuggling. So one space is read.
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
# Section 5.1: no white space before the colon. Section 5.2: no folded lines. The classes of the
# pattern are disjoint where it repeats, so it takes linear time.
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[ \t]*[\x21-\x7e\x80-\xff])*)?)[ \t]*"
)
_HOST = re.compile(r"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
"""Section 7.2 of RFC 9110: a host, which may be empty, and a port."""
_ABSOLUTE = re.compile(r"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
# 18 digits fit into 64 bits. `int` alone would also take a sign, underscores and white space.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ENCODINGS = {"identity": "", "gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
ONCE = frozenset({"content-length", "transfer-encoding", "host", "content-encoding", "expect"})
"""Fields that may stand in a head once only."""


class HeadFault(Exception):
    """A head that is refused, and the connection with it: where one request ends is not certain
    any more.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class HeadTooLarge(HeadFault):
    """A head over its bounds. Where it ends is certain, so another reading with larger bounds
    can tell what it says.
    """

    def __init__(self, why: str) -> None:
        super().__init__(431, why)


class Head:
    """What a head says of its message. ``length`` is that of the body, ``CHUNKED`` or
    ``ELSEWHERE``.

    ``answer_fields`` are lines that stand in the head of every answer to it.
    """

    __slots__ = (
        "accepts",
        "answer_fields",
        "close",
        "encoding",
        "expects",
        "fields",
        "length",
        "method",
        "old",
        "refusal",
        "target",
    )

    def __init__(self, method: str, target: str, fields: dict[str, str], *, old: bool) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.old = old
        self.length = 0
        self.close = old
        self.expects = False
        self.encoding = ""
        self.accepts = ""
        self.answer_fields = b""
        self.refusal: HeadFault | None = None
        """Why the request is refused although it is clear where it ends."""


def read_head(data: bytes, most_fields: int = MOST_FIELDS) -> Head:
    """Read a head, from the request line to the empty line.

    Raises:
        HeadFault: where it breaks a rule, with the status to answer.
    """
    # A bare CR or LF stays inside its line, and no pattern matches one there (section 2.2).
    lines = data[:-4].split(b"\r\n")
    line = _LINE.fullmatch(lines[0])
    if line is None:
        raise HeadFault(400, "the request line is no method, target and HTTP version")
    if len(lines) - 1 > most_fields:
        raise HeadTooLarge(f"a head of more than {most_fields} fields")
    method, target, major, minor = line.groups()
    if major != b"1":
        raise HeadFault(
            505,
            f"the request is of HTTP/{major.decode()}.{minor.decode()}; HTTP/1.0 and HTTP/1.1 "
            "are read",
        )
    fields: dict[str, str] = {}
    for each in lines[1:]:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise HeadFault(400, "a line of the head is no field")
        name, value = field[1].decode().lower(), field[2].decode("latin-1")
        if name in fields:
            if name in ONCE:
                raise HeadFault(400, f"the head has {name} twice")
            value = f"{fields[name]}, {value}"
        fields[name] = value
    target_of = _target(method.decode(), target.decode())
    head = Head(
        method.decode(), target_of, fields, old=minor == b"0"
    )  # any later 1.x is answered as 1.1
    _check_host(head)
    _frame(head)
    negotiate(head)
    return head


def _target(method: str, target: str) -> str:
    """Path and query of a target, or ``*``: section 3.2.

    The authority of an absolute target is checked and not used: there is one host here.
    """
    if target.startswith("/"):
        return target
    if target == "*" and method == "OPTIONS":
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not valid_host(absolute[1]):
        raise HeadFault(400, "the target is no path")
    rest = absolute[2]
    if not rest and method == "OPTIONS":
        return "*"
    return rest if rest.startswith("/") else f"/{rest}"


def valid_host(value: str) -> bool:
    """Whether this is a host with or without a port, as RFC 9110 writes them; it may be empty."""
    return _HOST.fullmatch(value) is not None


def _check_host(head: Head) -> None:
    """RFC 9112, section 3.2, also where the target names an authority. A second Host was refused
    before.
    """
    host = head.fields.get("host")
    if host is None:
        if not head.old:
            raise HeadFault(400, "the head has no host")
    elif not valid_host(host):
        raise HeadFault(
            400,
            f"host is {host[:100]!r}; a host name or address, with or without a port, is allowed",
        )


def _frame(head: Head) -> None:
    """Where the message ends: section 6."""
    coding, length = head.fields.get("transfer-encoding"), head.fields.get("content-length")
    if coding is not None:
        # Section 6.1 also permits to read such a message as chunked. It is refused: as a rule it is
        # an attempt to smuggle a request past a proxy that reads the length.
        if length is not None:
            raise HeadFault(400, "the head has a content-length and a transfer-encoding")
        # Section 6.1: the framing of such a message counts as faulty.
        if head.old:
            raise HeadFault(400, "HTTP/1.0 has no transfer-encoding")
        if coding.lower() != "chunked":
            raise HeadFault(501, f"transfer-encoding is {coding[:50]!r}; chunked is read")
        head.length = CHUNKED
    elif length is not None:
        if _LENGTH.fullmatch(length.encode("latin-1")) is None:
            raise HeadFault(400, "content-length is not a number")
        head.length = int(length)


def negotiate(head: Head) -> None:
    """What a head says of connection, expectation and encodings.

    Raises:
        HeadFault: for what there is not.
    """
    fields = head.fields
    # RFC 9112, section 9.3: `close` wins over `keep-alive`, in any order.
    for option in fields.get("connection", "").lower().split(","):
        if option.strip() == "close":
            head.close = True
            break
        if option.strip() == "keep-alive":
            head.close = False
    expect = fields.get("expect")
    # RFC 9110, section 10.1.1: an expectation of an HTTP/1.0 client is ignored.
    if expect is not None and not head.old:
        if expect.lower() != "100-continue":
            raise HeadFault(417, "expect is not 100-continue")
        head.expects = True
    named = fields.get("content-encoding", "identity").lower()
    if named not in _ENCODINGS:
        raise HeadFault(415, f"content-encoding is {named[:50]!r}; gzip and deflate are read")
    head.encoding = _ENCODINGS[named]
    head.accepts = _choose_encoding(fields.get("accept-encoding", ""))


def _choose_encoding(offers: str) -> str:
    """The encoding to answer with: gzip or deflate where they are named and not refused."""
    named = set()
    for offer in offers.lower().split(","):
        coding, _, weight = offer.partition(";")
        # RFC 9110, section 12.4.2: weights from 0 to 0.000 mean "not acceptable".
        if weight.replace(" ", "").rstrip("0") not in ("q=", "q=0", "q=0."):
            named.add(coding.strip())
    return next((each for each in ("gzip", "deflate") if each in named), "")


class Heads(Generic[H]):
    """Reads heads, and remembers by their bytes what they mean. Reading a head that is known costs
    a twentieth.

    A client sends the same head again and again, except for the length of the body. Such a head is
    remembered without the digits of that length. It cannot be confused with another head, for four
    reasons:

    1. The digits are cut only from a line that begins with ``Content-Length: `` right after a line
       end, and only where 1 to 18 digits and a carriage return follow. ``X-Content-Length`` or a
       value never match.
    2. A head is remembered only after ``read_head`` accepted it. ``read_head`` splits lines at the
       same bytes, and refuses a second content-length, a transfer-encoding beside it, and a bare CR
       or LF. So the cut line is the only line that differs between two heads with the same rest.
    3. Nobody who understands the head sees the digits: they are removed from ``fields`` before.
    4. Heads that lost their digits and whole heads are kept apart. Otherwise ``Content-Length: ``
       without digits, which is refused, would match a head that lost its digits.
    """

    def __init__(self, understand: Callable[[Head], H]) -> None:
        self._understand = understand
        self._whole: dict[bytes, tuple[Head, H]] = {}
        self._cut: dict[bytes, tuple[Head, H]] = {}

    def read(self, data: bytes) -> tuple[Head, H, int]:
        """The head, what it means to the server, and the length of the body.

        Raises:
            HeadFault: see ``read_head``.
        """
        at = data.find(b"\r\nContent-Length: ")
        if at < 0:
            at = data.find(b"\r\ncontent-length: ")
        if at >= 0:
            start = at + 18
            end = data.find(b"\r", start)
            digits = data[start:end]
            if len(digits) < 19 and digits.isdigit():
                key = data[:start] + data[end:]
                known = self._cut.get(key)
                if known is None:
                    known = self._learn(self._cut, key, _without_length(read_head(data), digits))
                head, meaning = known
                return head, meaning, int(digits)
        known = self._whole.get(data)
        if known is None:
            known = self._learn(self._whole, data, read_head(data))
        head, meaning = known
        return head, meaning, head.length

    def _learn(self, kept: dict[bytes, tuple[Head, H]], key: bytes, head: Head) -> tuple[Head, H]:
        made = head, self._understand(head)
        if len(key) <= LONGEST:
            if len(kept) >= REMEMBERED:
                # No order of use is kept: that would cost each request more than reading some heads
                # again.
                kept.clear()
            kept[key] = made
        return made


def _without_length(head: Head, digits: bytes) -> Head:
    """The head of any request that differs only in the length of its body."""
    declared = head.fields.pop("content-length")
    assert declared.encode("latin-1") == digits, "read_head and the cache found different lengths"
    head.length = ELSEWHERE
    return head

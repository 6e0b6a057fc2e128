"""What browsers, and pages that they have open, say to the application front."""

from __future__ import annotations

from typing import Any, cast

from cloud_ml.auth.application_tickets import (
    make_session,
    make_ticket,
    read_session,
    read_ticket,
)
from cloud_ml.gateway.application_answers import GUARDS, filtered
from cloud_ml.gateway.applications import ApplicationFront
from cloud_ml.net.http1.heads import HeadFault, read_head
from fuzz.harness import target

_KEY = bytes(range(32))
_COOKIE = "cloudml-session"
_REACHES_FURTHER = {
    b"set-cookie", b"clear-site-data", b"strict-transport-security", b"alt-svc",
    b"access-control-allow-origin", b"service-worker-allowed",
}  # fmt: skip
_FRONT = ApplicationFront(
    cast("Any", None), cast("Any", None), cast("Any", None),
    domain="localhost", secure=False, loop=cast("Any", None),
)  # fmt: skip


@target(
    "gateway.applications",
    seeds=(
        b"GET / HTTP/1.1\r\nHost: tb-a.localhost:8472\r\nCookie: a=1; cloudml-session=x; b=2\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: tb-a.localhost\r\nOrigin: http://tb-a.localhost\r\n"
        b"Sec-Fetch-Site: same-origin\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\nSec-Fetch-Site: cross-site\r\n"
        b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\nConnection: x-a\r\nX-A: 1\r\n\r\n",
    ),
    words=(
        b"Cookie: ", b"cloudml-session=", b"; ", b"Host: tb-a.localhost", b"Origin: ",
        b"Sec-Fetch-Site: ", b"same-origin", b"cross-site", b"navigate", b"document", b"\r\n",
        b"Authorization: ", b"X-Forwarded-For: ", b"Connection: ",
    ),
)  # fmt: skip
def application_head(data: bytes) -> None:
    """Nothing of the platform's reaches the application, and it reads one request."""
    try:
        head = read_head(data)
    except HeadFault:
        return
    meaning = _FRONT.understand(head)
    lines = meaning.lines.split(b"\r\n")
    assert lines.pop() == b"", "the last line ends"
    assert all(line and b"\n" not in line and b"\r" not in line for line in lines)
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    assert names.count(b"host") == 1
    assert names.count(b"cookie") <= 1
    hidden = {b"authorization", b"transfer-encoding", b"content-length", b"upgrade", b"forwarded"}
    assert not hidden & set(names)
    for line in lines[1:]:
        if line.lower().startswith(b"cookie:"):
            assert _COOKIE.encode() not in line.lower()
    if meaning.label:
        assert head.fields["host"].lower().startswith(f"{meaning.label}.localhost")
    site = head.fields.get("sec-fetch-site", "")
    if site == "cross-site" and head.method == "POST":
        assert meaning.from_elsewhere
    if head.fields.get("origin", "") not in ("", f"http://{meaning.host}"):
        assert meaning.from_elsewhere


@target(
    "auth.application_tickets",
    seeds=(
        make_ticket(_KEY, "AK.a", issued_ms=1, expires=2, session_until=3).encode(),
        make_session(_KEY, "AK.a", 3).encode(),
        b"cat1.a.1.2.3.AAAAAAAAAAAAAAAAAAAAAA." + b"A" * 43,
        b"cas1.a.1." + b"A" * 43,
    ),
    words=(b"cat1.", b"cas1.", b".", b"A" * 43),
)
def application_proof(data: bytes) -> None:
    """What is believed is what would be made again."""
    text = data.decode("latin-1")
    session = read_session(_KEY, text)
    if session is not None:
        assert make_session(_KEY, session.holder, session.until) == text
    ticket = read_ticket(_KEY, text)
    assert ticket is None or session is None
    if ticket is not None:
        numbers = f".{ticket.issued_ms}.{ticket.expires}.{ticket.session_until}."
        assert text.startswith(f"cat1.{ticket.holder}{numbers}{ticket.nonce}.")


@target(
    "gateway.application_answers",
    seeds=(
        b"Content-Type: text/html\r\nSet-Cookie: a=1; Domain=localhost\r\nETag: 1\r\n",
        b"content-encoding: gzip\r\nSET-COOKIE : a\r\n",
    ),
    words=(b"Set-Cookie: ", b"\r\n", b"Content-Encoding: ", b"identity", b"Clear-Site-Data: "),
)
def application_answer(data: bytes) -> None:
    """Nothing that reaches beyond the origin is passed on."""
    lines, packed = filtered(data)
    assert lines.endswith(GUARDS)
    names = [line.partition(b":")[0].strip().lower() for line in lines.split(b"\r\n")]
    assert not _REACHES_FURTHER & set(names)
    assert packed <= (b"content-encoding" in names)

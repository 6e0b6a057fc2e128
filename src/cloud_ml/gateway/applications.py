"""The application front: applications of tenants, each on a host name of its own, for browsers.

A request is passed on if its host is that of an application, it comes from that origin itself or
from a person who follows a link, and it brings the cookie that a ticket was exchanged for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs

from cloud_ml.auth.application_tickets import make_session, read_session, read_ticket
from cloud_ml.gateway import answers
from cloud_ml.gateway.access import Access
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.application_answers import GUARDS, PLAIN, filtered
from cloud_ml.gateway.calls import RestCall, refuse
from cloud_ml.gateway.services import Service
from cloud_ml.gateway.used_tickets import UsedTickets
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.heads import Head
from cloud_ml.net.pieces import Pieces

OPEN_PATH = "/-/cloudml/open"
"""Where a ticket is exchanged for a cookie. Applications never see it."""
_HOST = re.compile(r"([a-z0-9-]{1,63})\.([a-z0-9.-]+)(:[0-9]{1,5})?")
_SAFE = ("GET", "HEAD")
_MOST_SESSIONS = 200
"""Browsers keep some 180 cookies of a domain."""
_KEPT_BACK = frozenset({
    "accept-encoding", "authorization", "connection", "content-encoding", "content-length",
    "cookie", "expect", "forwarded", "host", "keep-alive", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Fields of requests that applications do not get."""
_KEPT_BACK_BEGINNINGS = ("cloudml-", "x-cloudml-", "x-forwarded-", "x-real-", "x-xiaomi-")

NO_HOST = Refusal(5, 404, "there is no application of this name")
NO_SESSION = Refusal(
    16, 401, "sign in: open the URL that `cloudml tensorboard open NAME` prints, in this browser"
)
BAD_TICKET = Refusal(
    16, 401, "the URL was used or has expired; run `cloudml tensorboard open NAME` again"
)
FOREIGN = Refusal(7, 403, "the request comes from a page of another origin")
STARTING = Refusal(
    14, 503, "the application is starting; this page loads again in a moment",
    b"Retry-After: 3\r\nRefresh: 3\r\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ApplicationHead:
    """What a head means. ``lines`` are those that the application gets, without a length."""

    host: str
    label: str
    method: str
    target: str
    lines: bytes
    sessions: tuple[str, ...]
    from_elsewhere: bool


class ApplicationFront:
    """Takes requests over HTTP/1.1; see ``net.http1.service.Service``.

    Args:
        find: The service of an application, by the first label of its host.
        access: Knows which access keys work.
        tickets: Tickets that were used.
        domain: What follows that label in the host.
        secure: Whether browsers come over TLS.
        loop: The loop.
    """

    def __init__(
        self,
        find: Callable[[str], Service | None],
        access: Access,
        tickets: UsedTickets,
        *,
        domain: str,
        secure: bool,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find = find
        self._access = access
        self._tickets = tickets
        self._domain = domain
        self._secure = secure
        self._loop = loop
        self._now = now
        # Browsers take a cookie with this prefix only from the host itself, for `Path=/` and over
        # TLS. So no page of a sibling host can set it.
        self._cookie = "__Host-cloudml-session" if secure else "cloudml-session"

    # --- heads ---

    def understand(self, head: Head) -> ApplicationHead:
        """See ``net.http1.service.Service``."""
        host = head.fields.get("host", "").lower()
        found = _HOST.fullmatch(host)
        # Any other name that resolves to this address gets nothing (DNS rebinding).
        label = found[1] if found is not None and found[2] == self._domain else ""
        cookies, sessions = self._cookies(head.fields.get("cookie", ""))
        method = "GET" if head.method == "HEAD" else head.method  # the connection drops the body
        lines = [f"{method} {head.target} HTTP/1.1\r\nHost: {host}\r\n", *_passed(head.fields)]
        if cookies:
            lines.append(f"Cookie: {cookies}\r\n")
        return ApplicationHead(
            host=host,
            label=label,
            method=head.method,
            target=head.target,
            lines="".join(lines).encode("latin-1"),
            sessions=sessions,
            from_elsewhere=self._from_elsewhere(head, host),
        )

    def _cookies(self, field: str) -> tuple[str, tuple[str, ...]]:
        """The cookies for the application, and what may be its session, which is not among them.

        Without TLS, a page of another application can set cookies of that name for all of the
        domain. They do not hide the one that works.
        """
        kept: list[str] = []
        sessions: list[str] = []
        for each in filter(None, (part.strip() for part in field.split(";"))):
            name, _, value = each.partition("=")
            if name.strip() == self._cookie:
                sessions.append(value.strip())
            elif "cloudml-session" not in each.lower():  # also behind a comma, of a second field
                kept.append(each)
        return "; ".join(kept), tuple(sessions[:_MOST_SESSIONS])

    def _from_elsewhere(self, head: Head, host: str) -> bool:
        """Whether a page of another origin makes the request. Links that a person follows are
        no such requests.
        """
        fields = head.fields
        origin = fields.get("origin", "")
        if origin and origin != f"{'https' if self._secure else 'http'}://{host}":
            return True
        site = fields.get("sec-fetch-site", "")
        # Browsers without `Sec-Fetch-Site` send `Origin` with all methods but GET and HEAD.
        if site in ("same-origin", ""):
            return not site and head.method not in _SAFE and not origin
        # A frame navigates, too: its destination is `iframe` and not `document`.
        followed = fields.get("sec-fetch-mode") == "navigate"
        whole_page = fields.get("sec-fetch-dest", "document") == "document"
        return not (followed and whole_page and head.method in _SAFE)

    # --- requests ---

    def refused(self, meaning: ApplicationHead) -> bool:
        """Whether ``serve`` refuses, whatever the body: see ``net.http1.limits.Limits``."""
        service = self._find(meaning.label) if meaning.label else None
        return service is None or self._refusal(service, meaning) is not None

    def serve(self, call: HttpCall, meaning: ApplicationHead, body: bytes | Pieces) -> None:
        """See ``net.http1.service.Service``."""
        service = self._find(meaning.label) if meaning.label else None
        if service is None:
            answer_refusal(call, NO_HOST)
            return
        path, _, query = meaning.target.partition("?")
        if path == OPEN_PATH:
            self._sign_in(call, service, meaning, query)
            return
        if (refusal := self._refusal(service, meaning)) is not None:
            answer_refusal(call, refusal)
            return
        has_body = bool(body) or meaning.method not in _SAFE
        length = b"Content-Length: %d\r\n\r\n" % len(body) if has_body else b"\r\n"
        service.take(
            ApplicationCall(
                service, call, meaning.lines + length, body,
                deadline=self._loop.time() + service.timeout_s, safe=meaning.method in _SAFE,
            )
        )  # fmt: skip

    def _refusal(self, service: Service, meaning: ApplicationHead) -> Refusal | None:
        if meaning.from_elsewhere:
            return FOREIGN
        works = any(self._works(service, text) for text in meaning.sessions)
        return None if works else NO_SESSION

    def _works(self, service: Service, text: str) -> bool:
        session = read_session(_key(service), text)
        if session is None or session.until <= self._now():
            return False
        return self._access.works(session.holder, service.route.org)

    def _sign_in(
        self, call: HttpCall, service: Service, meaning: ApplicationHead, query: str
    ) -> None:
        """Exchange a ticket for a cookie, and show the application without the ticket in its
        address.
        """
        if meaning.method != "GET" or meaning.from_elsewhere:
            answer_refusal(call, FOREIGN)
            return
        key = _key(service)
        ticket = read_ticket(key, parse_qs(query).get("ticket", [""])[0])
        holds = ticket is not None and self._access.works(ticket.holder, service.route.org)
        # `use` comes last: a ticket that would not open is not used up.
        if ticket is None or not holds or not self._tickets.use(ticket):
            if self._refusal(service, meaning) is None:  # signed in, and the page is loaded again
                call.reply(HTTPStatus.SEE_OTHER, PLAIN + b"Location: /\r\n" + GUARDS, b"")
            else:
                answer_refusal(call, BAD_TICKET)
            return
        left = max(0, ticket.session_until - int(self._now()))
        session = make_session(key, ticket.holder, ticket.session_until)
        cookie = f"{self._cookie}={session}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax"
        cookie += "; Secure" if self._secure else ""
        fields = f"Location: /\r\nSet-Cookie: {cookie}\r\n".encode()
        call.reply(HTTPStatus.SEE_OTHER, PLAIN + fields + GUARDS, b"")


class ApplicationCall(RestCall):
    """A call of an application, whose answer is not believed."""

    __slots__ = ()

    def refuse(self, refusal: Refusal) -> None:
        answer_refusal(self._call, STARTING if refusal is answers.NOBODY else refusal)

    def answered(self, status: int, fields: bytes, body: bytes | Pieces) -> None:
        """The answer is whole."""
        self.service.done(self, well=status < 400)
        lines, packed = filtered(fields)
        try:
            self._call.reply(status, lines, body, packed=packed)
        except KeyError:  # a status that no list has
            refuse(self._call, answers.BROKEN)


def answer_refusal(call: HttpCall, refusal: Refusal) -> None:
    """Answer with a sentence of the gateway's own, for a person."""
    call.reply(refusal.http, PLAIN + refusal.fields + GUARDS, f"{refusal.message}\n".encode())


def _key(service: Service) -> bytes:
    return bytes.fromhex(service.route.key)


def _passed(fields: Mapping[str, str]) -> list[str]:
    """The lines of a request that the application gets."""
    # RFC 9110, section 7.6.1: fields that `Connection` names concern this connection alone.
    listed = {each.strip().lower() for each in fields.get("connection", "").split(",")}
    return [
        f"{name}: {value}\r\n"
        for name, value in fields.items()
        if name not in _KEPT_BACK
        and name not in listed
        and not name.startswith(_KEPT_BACK_BEGINNINGS)
    ]

"""The application front against what pages and tenants may try: a real gateway, an application that
answers as it likes.
"""

from __future__ import annotations

import contextlib
import http.server
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.auth.application_tickets import make_session, make_ticket
from cloud_ml.auth.tokens import derived_key
from cloud_ml.domain.services.routes import SOCKET, CallingKey, Route
from support.browser import FETCH, NAVIGATION, Browser, Page
from support.gateway_process import GatewayProcess, free_port
from support.replica_sockets import backend, replica_folder

pytestmark = pytest.mark.timeout(120)

KEYS = {"one": "11" * 32, "two": "22" * 32}
MINE, THEIRS = "AK.mine", "AK.theirs"
CALLING = {
    MINE: CallingKey("mine", derived_key("a").hex()),
    THEIRS: CallingKey("theirs", derived_key("b").hex()),
}
DOMAIN = "localhost"


class _Application(http.server.BaseHTTPRequestHandler):
    """Says what it was asked, with fields that reach beyond its origin."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = f"{self.command} {self.path}\n{self.headers}".encode()
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/plain"),
            ("Set-Cookie", "evil=1; Domain=localhost"),
            ("Clear-Site-Data", '"*"'),
            ("Strict-Transport-Security", "max-age=9; includeSubDomains"),
            ("Access-Control-Allow-Origin", "*"),
            ("X-Frame-Options", "ALLOWALL"),
            ("Alt-Svc", 'h2="evil.example:443"'),
            ("Content-Security-Policy", "frame-ancestors *"),
            ("Content-Length", str(len(body))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET  # noqa: N815 - names of http.server

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def address_string(self) -> str:
        return "gateway"


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def application(jobs: Path, uid: str) -> Iterator[None]:
    path = replica_folder(jobs, uid) / SOCKET
    with _UnixServer(str(path), _Application) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield
        server.shutdown()
        thread.join()
    path.unlink()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a gateway with two applications of one organisation."""
    folder = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    port = free_port()
    applications = {"host": "127.0.0.1", "domain": DOMAIN, "start_s": 1.0}
    try:
        with (
            application(folder, "one"),
            application(folder, "two"),
            GatewayProcess(folder, applications=applications) as gateway,
        ):
            routes = {
                uid: Route(port, "mine", uid, backends=(backend(uid),), label=f"tb-{uid}", key=key)
                for uid, key in KEYS.items()
            }
            asleep = Route(port, "mine", "asleep", label="tb-asleep", key="33" * 32)
            gateway.tell({**routes, "asleep": asleep}, keys=CALLING)
            yield port
    finally:
        shutil.rmtree(folder)


def ticket(uid: str = "one", holder: str = MINE, *, issued: int = 0, lasts: int = 60) -> str:
    now = time.time() + issued
    begins = int(now)
    return make_ticket(
        bytes.fromhex(KEYS[uid]), holder, issued_ms=int(now * 1000), expires=begins + lasts,
        session_until=begins + 3600,
    )  # fmt: skip


def url(port: int, path: str = "/", uid: str = "one") -> str:
    return f"http://tb-{uid}.{DOMAIN}:{port}{path}"


def opened(port: int, text: str, uid: str = "one", browser: Browser | None = None) -> Page:
    return (browser or Browser(port)).get(url(port, f"/-/cloudml/open?ticket={text}", uid))


@pytest.fixture
def browser(port: int) -> Browser:
    """Signed in to the application ``one``."""
    browser = Browser(port)
    assert opened(port, ticket(), browser=browser).status == 303
    return browser


def test_a_ticket_opens_once_and_its_own_application_only(port: int) -> None:
    browser, once = Browser(port), ticket()
    page = opened(port, once, browser=browser)
    assert (page.status, page.headers["location"]) == (303, "/")
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "domain" not in cookie.lower()
    assert page.headers["referrer-policy"] == "no-referrer"
    assert browser.get(url(port)).status == 200
    assert opened(port, once).status == 401, "it was used"
    again = opened(port, once, browser=browser)  # the page is loaded again, or found in a history
    assert (again.status, again.headers["location"]) == (303, "/")
    assert "set-cookie" not in again.headers
    assert opened(port, ticket("one"), "two").status == 401, "it is of another application"
    assert opened(port, ticket(lasts=-1)).status == 401, "it has expired"
    assert opened(port, ticket(issued=-3600, lasts=7200)).status == 401, "issued before the gateway"
    assert opened(port, ticket(holder=THEIRS)).status == 401, "its key is of another organisation"
    assert opened(port, ticket(holder="AK.gone")).status == 401, "its key works no more"
    assert opened(port, "").status == 401
    forged = ticket()
    other = "B" if forged[-9] == "A" else "A"
    assert opened(port, forged[:-9] + other + forged[-8:]).status == 401, "it is forged"


def test_a_session_is_found_beside_others_that_are_none(port: int, browser: Browser) -> None:
    """A page of another application can set cookies for the whole domain, where there is no TLS."""
    host = f"tb-one.{DOMAIN}"
    good = browser.cookies[host]
    for tossed in ("cloudml-session=x", "cloudml-session=", "; ".join(["cloudml-session=y"] * 150)):
        for cookies in (f"{good}; {tossed}", f"{tossed}; {good}"):
            assert Browser(port, {host: cookies}).get(url(port)).status == 200, cookies
        assert Browser(port, {host: tossed}).get(url(port)).status == 401


def test_a_ticket_is_not_used_up_by_what_is_no_navigation(port: int) -> None:
    once = ticket()
    path = url(port, f"/-/cloudml/open?ticket={once}")
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert Browser(port).get(path, image).status == 403
    assert Browser(port).get(path, method="POST", body=b"").status == 403
    assert opened(port, once).status == 303


def test_nobody_without_a_session_reaches_an_application(port: int, browser: Browser) -> None:
    assert Browser(port).get(url(port)).status == 401
    ours = browser.cookies[f"tb-one.{DOMAIN}"]
    foreign = Browser(port, {f"tb-two.{DOMAIN}": ours})
    assert foreign.get(url(port, uid="two")).status == 401, "a cookie of another application"
    name = ours.partition("=")[0]
    key, until = bytes.fromhex(KEYS["one"]), int(time.time()) + 60
    for session, why in (
        (make_session(key, THEIRS, until), "a key of another organisation"),
        (make_session(key, MINE, until - 120), "it is over"),
        (make_session(bytes(32), MINE, until), "made with another key"),
        (make_session(key, MINE, until).replace("cas1", "cat1"), "another kind"),
    ):
        forged = Browser(port, {f"tb-one.{DOMAIN}": f"{name}={session}"})
        assert forged.get(url(port)).status == 401, why


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1", "localhost", "tb-none.localhost", "tb-one.evil.example",
        "tb-one.localhost.evil.example", "evil.tb-one.localhost", "tb-one", "tb-one.localhost.", "",
    ],
)  # fmt: skip
def test_a_host_that_is_none_of_ours_is_not_found(port: int, browser: Browser, host: str) -> None:
    """Also one that was made to mean this machine later: the browser sends no cookie then, and the
    host alone is refused.
    """
    stolen = browser.cookies[f"tb-one.{DOMAIN}"]
    page = browser.get(url(port), {"Host": host, "Cookie": stolen, **NAVIGATION})
    assert page.status == 404


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (NAVIGATION, 200),
        (FETCH, 200),
        ({}, 200),  # a program that keeps the cookie, and no browser of today
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
          "Sec-Fetch-Dest": "document"}, 200),  # a link that a person follows
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
          "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors",
          "Sec-Fetch-Dest": "script"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null", **FETCH}, 403),
        ({"Origin": "http://tb-two.localhost"}, 403),
    ],
)  # fmt: skip
def test_pages_of_other_origins_get_nothing(
    port: int, browser: Browser, fields: dict[str, str], status: int
) -> None:
    assert browser.get(url(port), fields).status == status


def test_changes_come_from_the_applications_own_pages(port: int, browser: Browser) -> None:
    own = {"Origin": url(port, ""), **FETCH}
    assert browser.get(url(port), own, method="POST", body=b"x").status == 200
    assert browser.get(url(port), {}, method="POST", body=b"x").status == 403
    assert browser.get(url(port), NAVIGATION, method="POST", body=b"x").status == 403
    link = {**NAVIGATION, "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    assert browser.get(url(port), link, method="POST", body=b"x").status == 403


def test_the_application_sees_nothing_of_the_platforms(port: int, browser: Browser) -> None:
    ours = browser.cookies[f"tb-one.{DOMAIN}"]
    fields = {
        "Cookie": f"mine=1; {ours}; two=2, {ours}; last=3",
        "Authorization": "Bearer token",
        "X-Cloudml-Secret": "1",
        "X-Forwarded-For": "10.0.0.1",
        "Connection": "X-Listed",
        "X-Listed": "1",
        "X-Kept": "1",
        **FETCH,
    }
    received = browser.get(url(port, "/a/../b?c=d"), fields).body.decode()
    assert received.startswith("GET /a/../b?c=d\n"), "the path is the application's own affair"
    assert "Cookie: mine=1; last=3\n" in received.replace("cookie:", "Cookie:")
    assert "x-kept: 1" in received.lower()
    for word in ("cloudml", "authorization", "x-forwarded", "x-listed", "bearer"):
        assert word not in received.lower().replace("tb-one.localhost", ""), word


def test_what_reaches_beyond_the_origin_is_not_passed_on(port: int, browser: Browser) -> None:
    page = browser.get(url(port))
    assert page.headers["content-security-policy"] == "frame-ancestors *, frame-ancestors 'none'"
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cross-origin-resource-policy"] == "same-origin"
    assert not page.headers.keys() & {
        "set-cookie", "clear-site-data", "strict-transport-security", "alt-svc",
        "access-control-allow-origin", "server",
    }  # fmt: skip
    for refusal in (Browser(port).get(url(port)), browser.get(url(port, uid="none"))):
        assert refusal.headers["x-frame-options"] == "DENY"


def test_one_that_does_not_come_up_is_told_about(port: int) -> None:
    key, until = bytes.fromhex("33" * 32), int(time.time()) + 60
    session = f"cloudml-session={make_session(key, MINE, until)}"
    page = Browser(port, {f"tb-asleep.{DOMAIN}": session}).get(url(port, uid="asleep"))
    assert (page.status, page.headers["refresh"]) == (503, "3")
    assert b"starting" in page.body


def test_requests_that_are_no_http_are_refused(port: int) -> None:
    for data in (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: tb-one.localhost\r\n\r\n",
        b"GET http://tb-one.localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(data)
            status = line.recv(65_536).partition(b"\r\n")[0]
            assert status.split()[1] in (b"400", b"404", b"505"), status

"""The program that fetches, against a real web server on loopback, which only a setting opens."""

from __future__ import annotations

import http.server
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import cloud_ml
from cloud_ml.fetching.program import fetch
from cloud_ml.fetching.task import FetchFailed, Task
from support.web import Web, serving_web

ALLOWED = ("127.0.0.1",)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving_web() as web:
        yield web


def get(url: str, **more: Any) -> bytes:
    out = io.BytesIO()
    resolve = more.pop("resolve", None)
    task = Task(url, **{"allow": ALLOWED, **more})
    size = fetch(task, out, **({"resolve": resolve} if resolve else {}))
    assert size == len(out.getvalue())
    return out.getvalue()


def refused(url: str, **more: Any) -> str:
    with pytest.raises(FetchFailed) as caught:
        get(url, **more)
    return str(caught.value)


def test_what_is_there_is_fetched(web: Web) -> None:
    assert get(web.page("/a.tar.gz?x=1", b"code" * 10_000)) == b"code" * 10_000
    assert get(web.redirect("/moved", "/a.tar.gz?x=1")) == b"code" * 10_000
    assert "does not exist" in refused(web.url("/none"))


def test_loopback_is_refused_unless_it_is_allowed(web: Web) -> None:
    before = len(web.seen)
    for host in (
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
    ):
        message = refused(f"http://{host}:{web.server_port}/a", allow=())
        assert "the operator has to allow it" in message or "there is no host" in message, host
    assert len(web.seen) == before


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:80/",
        "http://127.0.0.2/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::ffff:169.254.169.254]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "//169.254.169.254/",
    ],
)
def test_no_redirect_leads_inside(web: Web, target: str) -> None:
    message = refused(web.redirect("/inside", target))
    assert "the operator has to allow it" in message
    assert "169.254" not in message or "169.254.169.254" in target


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://x", "http://a@127.0.0.1/"]
)
def test_no_redirect_leads_to_another_scheme(web: Web, target: str) -> None:
    assert "something else than http" in refused(web.redirect("/odd", target))


def test_redirects_end(web: Web) -> None:
    assert "more than 3 times" in refused(web.redirect("/loop", "/loop"), redirects=3)


def test_every_address_of_a_name_is_judged(web: Web) -> None:
    def inside(host: str, port: int) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port)),
        ]

    message = refused("http://rebinding.example/", resolve=inside)
    assert "rebinding.example leads to an address that is private" in message
    assert "10.0.0.7" not in message


def test_a_name_is_resolved_once_and_its_address_is_used(web: Web) -> None:
    page = web.page("/pinned", b"x")
    hosts: list[str] = []

    def once(host: str, port: int) -> Any:
        hosts.append(host)
        address = "127.0.0.1" if len(hosts) == 1 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    assert (
        get(page.replace("127.0.0.1", "name.example"), resolve=once, allow=("name.example",))
        == b"x"
    )
    assert hosts == ["name.example"]


def test_a_body_without_end_is_cut_off(web: Web) -> None:
    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not web.over.is_set():
            handler.wfile.write(bytes(65_536))

    web.pages["/endless"] = endless
    assert "more than 1000000 bytes" in refused(web.url("/endless"), size_limit=1_000_000)


def test_an_announced_length_is_believed_and_held(web: Web) -> None:
    def lying(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"short")

    web.pages["/lying"] = lying
    assert "too early" in refused(web.url("/lying"))
    assert "it has 100 bytes" in refused(web.url("/lying"), size_limit=50)


def test_what_is_no_web_server_is_told(web: Web) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert "cannot be reached" in refused(f"http://127.0.0.1:{port}/")
    assert "certificate" in refused(web.url("/a").replace("http:", "https:"))


def run(task: Task) -> tuple[int, bytes, dict[str, str]]:
    """The program as the server starts it."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from cloud_ml.fetching.program import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(Path(cloud_ml.__file__).parents[1])],
        input=json.dumps(asdict(task)).encode(),
        env={},
        cwd="/",
        capture_output=True,
        check=False,
        timeout=30,
    )
    return ended.returncode, ended.stdout, json.loads(ended.stderr)


def test_the_program_writes_what_it_fetched_and_reports(web: Web) -> None:
    assert run(Task(web.page("/b", b"bytes"), ALLOWED)) == (0, b"bytes", {})
    code, _, report = run(Task(web.url("/b")))
    assert (code, "loopback" in report["problem"]) == (1, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_program_becomes_somebody_else(web: Web) -> None:
    assert run(Task(web.page("/c", b"as nobody"), ALLOWED, user=65_534)) == (0, b"as nobody", {})
    code, _, report = run(Task("http://no-such-host.invalid/", user=65_534))
    assert (code, report["problem"]) == (1, "there is no host no-such-host.invalid")


def test_a_slow_drip_ends_in_time(web: Web) -> None:
    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not web.over.wait(0.05):
            handler.wfile.write(b"x")

    web.pages["/drip"] = drip
    code, _, report = run(Task(web.url("/drip"), ALLOWED, timeout_s=1))  # the page has no end
    assert (code, report["problem"]) == (1, "it did not arrive within 1 s")

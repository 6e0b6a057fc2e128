"""Chromium, as Debian has it, in front of a real TensorBoard: what a person sees, and what a hostile
page that the same browser has open gets.
"""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.client_environments import client_environment
from support.event_files import TUNED
from support.gateway_process import free_port
from support.server import RealServer, serving

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

PERSON = """
import json, sys
from playwright.sync_api import sync_playwright

DRAWN = '''() => [...document.querySelectorAll("line-chart")].some(
    chart => chart.offsetWidth > 0 && chart.offsetHeight > 0)'''
asked = json.load(sys.stdin)
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=asked["chromium"], args=["--no-sandbox"])
    page = browser.new_context().new_page()
    framed, refused = [], []
    page.goto(asked["url"], timeout=120_000)
    address = page.url
    page.goto(page.url + "#timeseries")
    for name in ("board-1", "board-3"):
        page.get_by_text(name, exact=False).first.wait_for(timeout=120_000)
    page.wait_for_function(DRAWN, timeout=60_000)
    curves = page.evaluate(
        "fetch('data/plugin/scalars/tags').then(answer => answer.json())"
    )
    cookies = page.context.cookies()
    page.screenshot(path=asked["picture"])
    again = page.context.new_page().goto(asked["url"]).status
    used = browser.new_context().new_page().goto(asked["url"]).status

    hostile = page.context.new_page()
    hostile.goto(asked["hostile"])
    origin = address.rstrip("/")
    got = hostile.evaluate('''async origin => {
        const found = {};
        for (const [name, options] of [["cors", {credentials: "include"}],
                                       ["opaque", {credentials: "include", mode: "no-cors"}]]) {
            try { found[name] = (await fetch(origin + "/data/environment", options)).type; }
            catch (error) { found[name] = "failed"; }
        }
        found.script = await new Promise(done => {
            const one = document.createElement("script");
            one.onload = () => done("loaded"); one.onerror = () => done("failed");
            one.src = origin + "/index.js"; document.body.append(one);
        });
        return found;
    }''', origin)
    hostile.evaluate('''origin => {
        const frame = document.createElement("iframe");
        frame.src = origin + "/"; document.body.append(frame);
    }''', origin)
    hostile.wait_for_timeout(3000)
    frames = [frame for frame in hostile.frames if frame != hostile.main_frame]
    inside = [frame.evaluate("document.title") for frame in frames if frame.url.startswith(origin)]
    said = {"address": address, "curves": curves, "cookies": cookies, "again": again, "used": used,
            "got": got, "inside": inside, "title": page.title()}
    print(json.dumps(said))
    browser.close()
"""


class _Page(http.server.BaseHTTPRequestHandler):
    """A page of somebody else."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><body></body>")

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def hostile() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://evil.localhost:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_person_sees_the_curves_of_two_jobs_and_a_hostile_page_sees_nothing(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, hostile: str
) -> None:
    programs = client_environment("chromium", "playwright==1.65.2")
    (script := tmp_path / "board.py").write_text(TUNED)
    folder = tmp_path_factory.mktemp("chromium")
    with serving(folder, CLOUDML_APPLICATIONS_PORT=free_port()) as server:
        for rate in ("0.1", "0.3"):
            made = ("jobs", "submit", "-W", str(script), "-n", f"board-{rate[2:]}")
            output = ("--output-path", f"fds://cloudml/chromium/{rate}")
            server.cli(*made, *output, "--", "--learning_rate", rate).good()
        both = ("-j", "board-1", "-j", "board-3")
        server.cli("tensorboard", "create", "-n", "both", *both).good()
        seen = _seen(server, programs, tmp_path, hostile)
    assert seen["title"] == "TensorBoard"
    assert set(seen["curves"]) == {"board-1", "board-3"}
    assert "ticket" not in seen["address"]
    (cookie,) = seen["cookies"]
    assert cookie["domain"].startswith("tb-"), "of this host alone"
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    assert seen["again"] == 200, "the browser is signed in"
    assert seen["used"] == 401, "the ticket was used"
    assert seen["got"]["cors"] == "failed"
    assert seen["got"]["script"] == "failed"
    assert seen["inside"] == [], "no page frames it"


def _seen(server: RealServer, programs: Path, folder: Path, hostile: str) -> Any:
    document = {
        "chromium": CHROMIUM,
        "url": server.client().tensorboards.open("both").url,
        "hostile": hostile,
        "picture": str(folder / "seen.png"),
    }
    ran = subprocess.run(
        [programs / "python", "-c", PERSON],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout)

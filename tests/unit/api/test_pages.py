"""``/`` and ``/docs``: what strangers see, under which policy, and that nothing of theirs comes
back.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import re
from pathlib import Path

import pytest

import cloud_ml
from support.platform import Served

pytestmark = pytest.mark.anyio
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ROOT = Path(__file__).resolve().parents[3]


async def test_the_start_says_what_this_is_to_browsers_and_to_programs(served: Served) -> None:
    page = await served.client.send("GET", "/", {"Accept": BROWSER})
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "Cloud ML" in page.text
    for accept in ("*/*", "application/json", ""):
        answer = await served.client.send("GET", "/", {"Accept": accept} if accept else {})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["docs"] == "/docs"
        assert (await served.client.send("GET", answer.json()["openapi"])).status == 200
    assert page.headers["vary"] == answer.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/docs", "/mlflow/", "/api/v1/openapi.json", "/healthz"])
@pytest.mark.parametrize("accept", [BROWSER, "*/*"])
async def test_strangers_learn_no_version_and_no_name_of_a_host(
    served: Served, path: str, accept: str
) -> None:
    answer = await served.client.send(
        "GET", path, {"Accept": accept, "Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    )
    assert answer.status == 200
    assert cloud_ml.__version__ not in answer.text
    assert "evil" not in answer.text + repr(answer.headers)


@pytest.mark.parametrize("path", ["/", "/docs", "/mlflow/"])
async def test_a_page_runs_nothing_but_its_own_scripts(served: Served, path: str) -> None:
    page = await served.client.send("GET", path, {"Accept": BROWSER})
    policy = dict(
        each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";")
    )
    assert (
        policy["default-src"]
        == policy["base-uri"]
        == policy["form-action"]
        == policy["frame-ancestors"]
        == "'none'"
    )
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]* src=)|<style| on[a-z]+=| style=|https?://", page.text)


async def test_scripts_have_the_digests_that_the_page_names(served: Served) -> None:
    page = (await served.client.send("GET", "/docs")).text
    named = re.findall(r'(?:href|src)="(docs/[^"]+)"(?: integrity="([^"]+)")?', page)
    assert [name for name, _ in named] == [
        "docs/swagger-ui.css",
        "docs/swagger-ui-bundle.js",
        "docs/start.js",
    ]
    for name, integrity in named:
        packed = await served.client.send("GET", f"/{name}", {"Accept-Encoding": "gzip, br"})
        plain = await served.client.send("GET", f"/{name}")
        assert packed.headers["content-type"] == plain.headers["content-type"]
        assert packed.headers["x-content-type-options"] == "nosniff"
        if integrity:
            assert packed.headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed.body) == plain.body
            digest = base64.b64encode(hashlib.sha384(plain.body).digest()).decode()
            assert integrity == f"sha384-{digest}"


@pytest.mark.parametrize(
    "name", ["integrity.json", "docs.html", "..%2Fapp.py", "%2e%2e/app.py", "", "LICENSE.txt"]
)
async def test_no_other_file_is_sent(served: Served, name: str) -> None:
    assert (await served.client.send("GET", f"/docs/{name}")).status == 404


def test_the_viewer_is_the_one_that_is_pinned() -> None:
    spec = importlib.util.spec_from_file_location("viewer", ROOT / "tools" / "viewer.py")
    assert spec is not None
    assert spec.loader is not None
    viewer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viewer)
    assert viewer.faults() == []


async def test_the_page_of_a_run_writes_text_and_keeps_no_token(served: Served) -> None:
    script = (await served.client.send("GET", "/docs/run.js")).text
    assert "textContent" in script
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "Storage", "cookie"):
        assert word not in script

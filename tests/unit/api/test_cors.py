"""Pages of other origins: let in by the setting, exactly, and never with credentials of the
browser.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.settings import Settings
from cloud_ml.settings.checks import check
from support.asgi import Answer
from support.platform import Served

pytestmark = pytest.mark.anyio
APP = "https://app.example.com"


@pytest.fixture
def opened(served: Served) -> Served:
    served.platform.settings = replace(
        served.platform.settings, cors_origins=f"{APP}, http://localhost:3000"
    )
    return served


async def preflight(served: Served, origin: str, target: str = "/api/v1/jobs") -> Answer:
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    return await served.client.send("OPTIONS", target, {"Origin": origin, **asks})


async def test_it_is_off_by_default(served: Served) -> None:
    answer = await preflight(served, APP)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_page_of_a_named_origin_may_send_a_token_and_read_the_answer(
    opened: Served,
) -> None:
    preflight_answer = await preflight(opened, APP)
    assert preflight_answer.status == 204
    assert preflight_answer.headers["access-control-allow-origin"] == APP
    assert "authorization" in preflight_answer.headers["access-control-allow-headers"]
    assert "DELETE" in preflight_answer.headers["access-control-allow-methods"]
    token_request = {"scopes": ["jobs:read"], "expires_in_s": 60}
    token = (await opened.member.call("POST", "/api/v1/tokens", token_request)).json()["token"]
    answer = await opened.client.send(
        "GET", "/api/v1/jobs", {"Origin": APP, "Authorization": f"Bearer {token}"}
    )
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == APP
    refused = await opened.client.send("GET", "/api/v1/jobs", {"Origin": APP})
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, APP)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "null", "*", "http://app.example.com", f"{APP}.evil.example", f"{APP}:444", f"{APP}/",
        "https://APP.example.com", "https://xapp.example.com", f"{APP}, http://localhost:3000", "",
    ],
)  # fmt: skip
async def test_other_origins_are_not_told_that_they_may(opened: Served, origin: str) -> None:
    for answer in (
        await preflight(opened, origin),
        await opened.client.send("GET", "/api/v1/jobs", {"Origin": origin}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "Origin" in answer.headers["vary"]


async def test_credentials_of_browsers_are_never_allowed(opened: Served) -> None:
    for answer in (
        await preflight(opened, APP),
        await opened.client.send("GET", "/api/v1/jobs", {"Origin": APP}),
    ):
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["access-control-allow-origin"] != "*"


@pytest.mark.parametrize("target", ["/cloud_ml/v1/train", "/metrics", "/", "/healthz"])
async def test_no_other_door_is_opened(opened: Served, target: str) -> None:
    for answer in (
        await preflight(opened, APP, target),
        await opened.client.send("GET", target, {"Origin": APP}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "origin", ["*", "null", "app.example.com", f"{APP}/", f"{APP}/path", "https://*.example.com"]
)
def test_a_setting_that_is_no_exact_origin_is_refused(origin: str) -> None:
    settings = Settings()
    with pytest.raises(InvalidRequest, match=r"api\.cors_origins"):
        check(replace(settings, api=replace(settings.api, cors_origins=origin)))

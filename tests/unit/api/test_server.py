from __future__ import annotations

import pytest

from cloud_ml.errors import OutOfSpace
from cloud_ml.models import codec
from cloud_ml.models.server import ServerInfo, WhoAmI
from support.platform import FewFrameworks, Served

pytestmark = pytest.mark.anyio


async def test_the_caller_is_told_who_it_is(served: Served) -> None:
    answer = codec.decode(WhoAmI, (await served.stranger.call("GET", "/api/v1/whoami")).json())
    assert answer == WhoAmI(
        org="other", org_id="2", user="zoe", role="member", default_bucket="others"
    )


async def test_frameworks_and_server_are_described(served: Served) -> None:
    assert (await served.member.call("GET", "/api/v1/frameworks")).json() == FewFrameworks.offered
    info = codec.decode(ServerInfo, (await served.member.call("GET", "/api/v1/server")).json())
    assert (info.version, info.isolation) == ("1.2.3", {"sandbox": "none"})


async def test_health_needs_no_key(served: Served) -> None:
    assert (await served.client.send("GET", "/healthz")).json() == {"status": "ok"}
    assert (await served.client.send("GET", "/readyz")).json() == {"status": "ready"}


async def test_a_server_that_cannot_write_is_alive_and_not_ready(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.store.fail_writes(OutOfSpace("no space in /secret/place"))
    assert (await served.client.send("GET", "/healthz")).status == 200
    answer = await served.client.send("GET", "/readyz")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "store" in answer.text
    assert "/secret/place" not in answer.text
    assert "/secret/place" in caplog.text


async def test_readiness_is_tried_once_a_second_at_most(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []
    remember = served.store.remember
    monkeypatch.setattr(
        served.store, "remember", lambda once: (writes.append(once), remember(once))
    )
    for _ in range(5):
        await served.client.send("GET", "/readyz")
    assert len(writes) == 1
    served.clock.advance(1)
    await served.client.send("GET", "/readyz")
    assert len(writes) == 2


async def test_readiness_recovers(served: Served) -> None:
    served.store.fail_writes(OutOfSpace("full"))
    assert (await served.client.send("GET", "/readyz")).status == 503
    served.store.fail_writes(None)
    served.clock.advance(1)
    assert (await served.client.send("GET", "/readyz")).status == 200

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.client import CloudMlClient
from support.awaiting import event_loop
from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, serving


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def server(api: FakeApi) -> Iterator[FakeServer]:
    with serving(api) as fake:
        yield fake
    assert fake.bad_signatures == []


@pytest.fixture(params=["blocking", "awaiting"])
def client(request: pytest.FixtureRequest, server: FakeServer) -> Iterator[CloudMlClient]:
    """Each face of the SDK in turn: a test that asks for a client holds for both."""
    if request.param == "blocking":
        with CloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as made:
            yield made
        return
    with (
        event_loop() as loop,
        loop.make(lambda: AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint)) as made,
    ):
        yield made

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud_ml.client import CloudMlClient
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


@pytest.fixture
def client(server: FakeServer) -> Iterator[CloudMlClient]:
    with CloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as made:
        yield made

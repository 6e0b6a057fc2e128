from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.gateway_front import gateway_before, replica
from support.serving import Running, model_server, save_linear


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that serves ``y = 2x + 10``, to all who change nothing of it."""
    base = tmp_path_factory.mktemp("linear")
    save_linear(base / "1")
    with model_server("--model_name", "linear", "--model_base_path", str(base)) as running:
        yield running


@pytest.fixture(scope="session")
def ports(tmp_path_factory: pytest.TempPathFactory, linear: Running) -> Iterator[dict[str, int]]:
    """A model server, and a gateway in front of another one."""
    folder = tmp_path_factory.mktemp("http2")
    save_linear(folder / "linear" / "1")
    flags = ["--model_name", "linear", "--model_base_path", str(folder / "linear")]
    with replica(folder, *flags), gateway_before(folder) as port:
        yield {"model server": linear.port, "gateway": port}

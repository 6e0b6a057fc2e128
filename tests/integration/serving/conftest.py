from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.serving import Running, model_server, save_linear


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that serves ``y = 2x + 10``, to all who change nothing of it."""
    base = tmp_path_factory.mktemp("linear")
    save_linear(base / "1")
    with model_server("--model_name", "linear", "--model_base_path", str(base)) as running:
        yield running

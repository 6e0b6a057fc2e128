"""Fixtures for every folder of tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from support import postgres as clusters
from support.compiling import compile_once
from support.server import RealServer, serving

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Small products on several threads take five times as long while the machine is busy."""


def pytest_configure() -> None:
    """Before anything starts an engine."""
    compile_once()
    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")  # a busy machine is no fault of what is tested


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``LONG_SLICE=N`` runs the slow tests of half of the files, the other half with the next
    number. Tests of a file may build on those before.
    """
    number = os.environ.get("LONG_SLICE", "")
    if not number:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    files = set(list(dict.fromkeys(item.path for item in slow))[int(number) % 2 :: 2])
    others = {item for item in slow if item.path in files}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests and fixtures run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A real server that many tests share: they leave it running and use names of their own."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RealServer]]:
    """Starts servers for one test alone, with the settings given as variables."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            serving(tmp_path_factory.mktemp("server"), **settings)
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[clusters.Postgres]:
    """A PostgreSQL that many tests share, each with databases of its own. Mark them
    ``xdist_group("postgresql")``.
    """
    with clusters.running() as cluster:
        yield cluster

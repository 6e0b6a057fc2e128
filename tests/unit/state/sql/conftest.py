from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.state.sql.store import SqlStateStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStateStore]:
    store = SqlStateStore.open(url)
    yield store
    store.close()

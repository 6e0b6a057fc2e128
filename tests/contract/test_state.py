"""The contract of a state store over every store there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_ml.state.base import StateStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state import StateStoreContract
from support.postgres import Postgres


class TestMemory(StateStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[StateStore]:
        store = MemoryStateStore()
        yield store
        store.close()


class TestSqlite(StateStoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/state.db"

    @pytest.fixture
    def store(self, url: str) -> Iterator[StateStore]:
        store = SqlStateStore.open(url)
        yield store
        store.close()

    @pytest.fixture
    def reopen(self, url: str) -> Callable[[], StateStore]:
        return lambda: SqlStateStore.open(url)


@pytest.mark.xdist_group("postgresql-contract")
class TestPostgresql(StateStoreContract):
    @pytest.fixture
    def url(self, postgres: Postgres) -> str:
        return postgres.emptied()

    @pytest.fixture
    def store(self, url: str) -> Iterator[StateStore]:
        store = SqlStateStore.open(url, create=False)
        yield store
        store.close()

    @pytest.fixture
    def reopen(self, url: str) -> Callable[[], StateStore]:
        return lambda: SqlStateStore.open(url, create=False)

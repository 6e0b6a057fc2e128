"""All servers of a database use one data folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.errors import Conflict
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.data_folder_claim import LEASE, DataFolderClaim

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def test_servers_of_one_folder_hold_it_together(store: MemoryStateStore) -> None:
    clock = Clock()
    for _ in range(2):
        DataFolderClaim(store, "here:/data", clock).take(clock.sleep)
    assert clock.now == NOW, "neither waits"


def test_a_server_with_another_folder_is_refused_when_the_first_one_lives(
    store: MemoryStateStore,
) -> None:
    clock = Clock()
    first = DataFolderClaim(store, "here:/data", clock)
    first.take(clock.sleep)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        first.take(clock.sleep)  # it renews its lease

    with pytest.raises(Conflict) as refused:
        DataFolderClaim(store, "there:/other", clock).take(sleep)
    assert "here:/data" in refused.value.message
    assert "there:/other" in refused.value.message
    assert refused.value.field == "server.data_dir"


def test_a_server_with_another_folder_waits_for_the_end_of_a_killed_one(
    store: MemoryStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    DataFolderClaim(store, "here:/data", clock).take(clock.sleep)
    DataFolderClaim(store, "there:/other", clock).take(clock.sleep)
    assert timedelta() < clock.now - NOW < timedelta(seconds=20)
    assert "here:/data" in caplog.text, "what lies there is missing"
    found = store.find_lease(LEASE)
    assert found is not None
    assert found.holder == "there:/other"


def test_one_that_has_ended_in_order_holds_up_nobody(store: MemoryStateStore) -> None:
    clock = Clock()
    first = DataFolderClaim(store, "here:/data", clock)
    first.take(clock.sleep)
    first.release()
    DataFolderClaim(store, "there:/other", clock).take(clock.sleep)
    assert clock.now == NOW

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.settings import StorageSettings
from cloud_ml.usecases.storage.usage import UsageCounter

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def objects() -> MemoryObjectStore:
    objects = MemoryObjectStore()
    objects.create_bucket("data")
    objects.put("data", "a/1", b"12345")
    return objects


def test_a_figure_is_kept_until_it_is_stale_and_uploads_are_added(
    objects: MemoryObjectStore,
) -> None:
    time = Time()
    counted = UsageCounter(
        objects, lambda: NOW, StorageSettings(usage_staleness_s=60), monotonic=time
    )
    assert (counted.bucket("data").objects, counted.bucket("data").bytes) == (1, 5)
    objects.put("data", "b", b"written by a job")
    time.now = 59
    assert counted.bucket("data").objects == 1
    counted.add("data", 100)
    assert (counted.bucket("data").objects, counted.bucket("data").bytes) == (2, 105)
    time.now = 60
    assert (counted.bucket("data").objects, counted.bucket("data").bytes) == (2, 21)


def test_what_takes_too_long_is_a_lower_bound(objects: MemoryObjectStore) -> None:
    counted = UsageCounter(
        objects,
        lambda: NOW,
        StorageSettings(usage_time_limit_s=0),
        monotonic=iter(range(99)).__next__,
    )
    assert not counted.below("data", "").complete


def test_a_bucket_that_is_gone_holds_nothing(objects: MemoryObjectStore) -> None:
    counted = UsageCounter(objects, lambda: NOW, StorageSettings())
    assert (counted.bucket("gone").objects, counted.bucket("gone").complete) == (0, True)


def test_who_uploads_does_not_wait_for_a_count_and_slips_nothing_through(
    objects: MemoryObjectStore,
) -> None:
    ticks = iter(range(99))

    def tick() -> float:
        if (
            now := next(ticks)
        ) == 2:  # in the middle of the count, in whose thread a wait would never end
            counted.add("data", 100)
        return now

    counted = UsageCounter(objects, lambda: NOW, StorageSettings(), monotonic=tick)
    assert counted.bucket("data").bytes == 105

"""Two servers on one database change the registry of models at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_ml.domain.tracking.registry import ModelVersionSpec, Stage
from cloud_ml.errors import NotFound
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.usecases.access.identities import Identity, Organisation
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.tracking.registry import Registry
from support.postgres import Postgres

ROUNDS = 20
CALLER = Identity("key", "", Organisation(name="acme", number=1, default_bucket=""), "ann")
VERSION_SPEC = ModelVersionSpec("", 0, "fds://b/m")


def _registry(store: SqlStateStore) -> Registry:
    records = RecordLimits(store, system_clock, 0)
    return Registry(store, system_clock, records=records, settings=TrackingSettings())


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql-contract")),
    ]
)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Registry, Registry]]:
    """The registry at two servers. The model ``m`` has two versions."""
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        url, create = postgres.emptied(), False
    else:
        url, create = f"sqlite:///{tmp_path}/state.db", True
    stores = SqlStateStore.open(url, create=create), SqlStateStore.open(url, create=create)
    first, second = (_registry(store) for store in stores)
    first.create(CALLER, "m", {})
    for _ in range(2):
        first.create_version(CALLER, "m", VERSION_SPEC)
    yield first, second
    for store in stores:
        store.close()


def _together(*calls: Callable[[], object]) -> None:
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(run, calls))


def test_of_two_promotions_one_is_left(servers: tuple[Registry, Registry]) -> None:
    first, second = servers

    def promote(registry: Registry, number: int) -> None:
        registry.set_stage(CALLER, "m", number, "Production", archive=True)

    for _ in range(ROUNDS):
        _together(lambda: promote(first, 1), lambda: promote(second, 2))
        stages = [first.version("acme", "m", each).record.spec.stage for each in (1, 2)]
        assert sorted(stages) == [Stage.ARCHIVED, Stage.PRODUCTION]


def test_no_alias_and_no_version_is_lost_while_a_model_is_renamed(
    servers: tuple[Registry, Registry],
) -> None:
    first, second = servers
    kept: list[str] = []

    def rename() -> None:
        for number in range(ROUNDS):
            old, new = ("m", "n") if number % 2 == 0 else ("n", "m")
            first.rename(CALLER, old, new)

    def change() -> None:
        for number in range(ROUNDS):
            for name in ("m", "n"):
                try:
                    second.set_alias(CALLER, name, f"a{number}", 1)
                    made = second.create_version(CALLER, name, VERSION_SPEC)
                except NotFound:
                    continue
                kept.append(f"a{number}")
                numbers.append(made.record.spec.number)

    numbers: list[int] = []
    _together(rename, change)
    model = first.find("acme", "m")
    assert set(model.spec.aliases) >= set(kept)
    assert len(set(numbers)) == len(numbers)
    assert all(first.version("acme", "m", each) for each in numbers)

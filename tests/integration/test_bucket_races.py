"""Many make and remove the same bucket at once: record and folder come and go together, on every
database.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_ml.domain.tenancy import BUCKET, ORGANISATION, SYSTEM, Role
from cloud_ml.errors import AlreadyExists, Conflict, NotFound
from cloud_ml.models.admin.accounts import OrganisationChange
from cloud_ml.models.storage.objects import BeginUpload
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.settings import StorageSettings
from cloud_ml.state.base import StateStore
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.usecases.access.identities import Identities, Identity, Organisation
from cloud_ml.usecases.access.organisations import Organisations
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.uploads import Uploads
from support.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgresql")

NAME = "contested"
ROUNDS = 25
EXPECTED = (AlreadyExists, Conflict, NotFound)
UID_BASE = 300_000
_AS_ROOT = os.geteuid() == 0


class World:
    """Two organisations, and the two stores that must agree."""

    def __init__(self, store: StateStore, folder: Path) -> None:
        self.store = store
        self.root = folder
        self.objects = LocalObjectStore(
            folder, (lambda tenant: UID_BASE + tenant) if _AS_ROOT else None
        )
        self.identities = Identities(store, system_clock)
        self.storage = Storage(store, self.objects, system_clock)
        self.uploads = Uploads(self.storage, store, self.objects, system_clock, StorageSettings())
        self.orgs = [self.identities.create_organisation(name) for name in ("mine", "theirs")]

    def put(self, org: Organisation) -> None:
        with self.storage.upload(org.name, NAME, "a") as upload:
            upload.write(org.name.encode())
            upload.finish(None)

    def race(self, *works: Callable[[], object]) -> list[BaseException | None]:
        """Do all at the same time; only what a caller can understand may go wrong."""
        gate = threading.Barrier(len(works))

        def run(work: Callable[[], object]) -> BaseException | None:
            gate.wait()
            try:
                work()
            except EXPECTED as error:
                return error
            return None

        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(run, works))

    def check(self) -> None:
        """A record has its folder, a folder its record, and both have one owner."""
        record = self.store.find(BUCKET, SYSTEM, NAME)
        folder = self.root / NAME
        assert folder.exists() == (record is not None)
        uploads = self.objects.multipart.all(NAME)
        if record is None:
            assert list(uploads) == []
            return
        owner = next(org for org in self.orgs if org.name == record.spec.org)
        if _AS_ROOT:
            assert folder.stat().st_uid == UID_BASE + owner.number
        for path in folder.iterdir():
            assert path.read_bytes() == owner.name.encode(), "one organisation has another's object"

    def clear(self) -> None:
        record = self.store.find(BUCKET, SYSTEM, NAME)
        if record is not None:
            org = next(org for org in self.orgs if org.name == record.spec.org)
            if (self.root / NAME / "a").exists():
                self.storage.delete(org.name, NAME, "a")
            self.storage.delete_bucket(org, NAME)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    if request.param == "sqlite":
        store = SqlStateStore.open(f"sqlite:///{tmp_path}/state.db")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        store = SqlStateStore.open(postgres.emptied(), create=False)
    yield store
    store.close()


@pytest.fixture
def world(store: StateStore, tmp_path: Path) -> World:
    return World(store, tmp_path / "objects")


def test_removing_and_making_at_once(world: World) -> None:
    mine, theirs = world.orgs
    for _ in range(ROUNDS):
        world.storage.create_bucket(mine, NAME)
        world.race(
            lambda: world.storage.delete_bucket(mine, NAME),
            lambda: world.storage.create_bucket(theirs, NAME),
            lambda: world.storage.create_bucket(mine, NAME),
            lambda: world.storage.delete_bucket(theirs, NAME),
        )
        world.check()
        world.clear()


def test_two_make_it_and_one_gets_it(world: World) -> None:
    for _ in range(ROUNDS):
        errors = world.race(
            *(functools.partial(world.storage.create_bucket, org, NAME) for org in world.orgs)
        )
        assert sorted(type(error).__name__ for error in errors) == ["AlreadyExists", "NoneType"]
        world.check()
        world.clear()


def test_two_remove_it_and_one_does(world: World) -> None:
    mine, _ = world.orgs
    for _ in range(ROUNDS):
        world.storage.create_bucket(mine, NAME)
        errors = world.race(*[lambda: world.storage.delete_bucket(mine, NAME)] * 2)
        assert sorted(type(error).__name__ for error in errors) == ["NoneType", "NotFound"]
        world.check()


def test_an_upload_lands_in_the_bucket_it_was_meant_for_or_nowhere(world: World) -> None:
    mine, theirs = world.orgs
    for _ in range(ROUNDS):
        world.storage.create_bucket(mine, NAME)
        world.race(
            lambda: world.put(mine),
            lambda: world.storage.delete_bucket(mine, NAME),
            lambda: world.storage.create_bucket(theirs, NAME),
        )
        world.check()
        world.clear()


def test_an_upload_in_parts_goes_with_its_bucket(world: World) -> None:
    mine, theirs = world.orgs
    for _ in range(ROUNDS):
        world.storage.create_bucket(mine, NAME)
        world.race(
            lambda: world.uploads.begin(mine.name, NAME, BeginUpload(key="a")),
            lambda: world.storage.delete_bucket(mine, NAME),
            lambda: world.storage.create_bucket(theirs, NAME),
        )
        record = world.store.find(BUCKET, SYSTEM, NAME)
        if record is None or record.spec.org == theirs.name:
            assert list(world.objects.multipart.all(NAME)) == [], (
                "one organisation has another's upload"
            )
        world.check()
        world.clear()


def test_an_organisation_goes_with_all_its_buckets_or_stays(world: World) -> None:
    admin = _admin(world)
    organisations = Organisations(world.store, world.identities, world.storage, system_clock)
    for number in range(ROUNDS):
        org = world.identities.create_organisation(f"short-lived-{number}")
        world.orgs.append(org)
        organisations.change(admin, org.name, OrganisationChange(enabled=False))
        made, gone = world.race(
            functools.partial(world.storage.create_bucket, org, NAME),
            functools.partial(organisations.delete, admin, org.name),
        )
        record = world.store.find(ORGANISATION, SYSTEM, org.name)
        assert record is not None
        assert (record.delete_requested_at is None) == (gone is not None) == (made is None)
        world.check()
        world.clear()


def _admin(world: World) -> Identity:
    return world.identities.create_key(world.orgs[0], "root", role=Role.ADMIN)

"""What one organisation may take of a disk that all share: objects, folders, buckets, users, the
last free bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.domain.tenancy import Role
from cloud_ml.errors import OutOfSpace, QuotaExceeded
from cloud_ml.models.admin import accounts
from cloud_ml.models.storage.objects import BeginUpload
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.settings import StorageSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities, Organisation
from cloud_ml.usecases.access.users import Users
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.storage import object_limit
from cloud_ml.usecases.storage.object_limit import ObjectLimit
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.uploads import Uploads

MOST = 10


class Place:
    """Two organisations on one disk."""

    def __init__(self, folder: Path, settings: StorageSettings) -> None:
        self.store = MemoryStateStore()
        self.objects = LocalObjectStore(folder / "objects")
        self.storage = Storage(self.store, self.objects, system_clock, settings)
        self.uploads = Uploads(self.storage, self.store, self.objects, system_clock, settings)
        self.identities = Identities(self.store, system_clock)
        self.one, self.other = (self.organisation(name) for name in ("one", "other"))

    def organisation(self, name: str) -> Organisation:
        made = self.identities.create_organisation(name, default_bucket=f"{name}-data")
        self.storage.create_bucket(made, f"{name}-data")
        return made

    def put(self, key: str, org: str = "one") -> None:
        with self.storage.upload(org, f"{org}-data", key) as upload:
            upload.finish(None)

    def fill(self) -> int:
        """Store objects until one is refused; returns how many were stored."""
        for number in range(10 * MOST):
            try:
                self.put(f"fill-{number}")
            except QuotaExceeded as refused:
                assert "storage.objects_per_org" in str(refused.allowed)  # noqa: PT017
                return number
        raise AssertionError("nothing was refused")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(object_limit, "_GOOD_FOR_S", 0.0)  # counted anew for each object
    monkeypatch.setattr(object_limit, "_SHARE_OF_TIME", 0)
    monkeypatch.setattr(object_limit, "_RECOUNT_S", 0.0)
    monkeypatch.setattr(object_limit, "_INLINE_S", 60.0)
    return Place(
        tmp_path, StorageSettings(objects_per_org=MOST, buckets_per_org=3, disk_reserve="")
    )


def test_objects_beyond_the_limit_are_refused_and_others_do_not_notice(place: Place) -> None:
    assert place.fill() == MOST
    place.put("theirs", "other")
    for number in range(2):
        place.storage.delete("one", "one-data", f"fill-{number}")
    assert place.storage.upload("one", "one-data", "again") is not None


def _deep_key(place: Place) -> None:
    place.put("a/b/c/d/e/f/object")


def _folders_of_a_job(place: Place) -> None:
    (place.objects.folder("one-data") / "a/b/c/d/e/f/g").mkdir(parents=True)


def _files_of_a_job(place: Place) -> None:
    for number in range(7):
        (place.objects.folder("one-data") / f"file-{number}").touch()


def _parts_of_an_upload(place: Place) -> None:
    upload = place.uploads.begin(
        "one", "one-data", BeginUpload(key="whole")
    )  # a folder and what it says of the upload
    for number in range(1, 6):
        with place.uploads.part("one", "one-data", upload.id, number) as part:
            part.finish(None)


@pytest.mark.parametrize(
    "fill", [_deep_key, _folders_of_a_job, _files_of_a_job, _parts_of_an_upload]
)
def test_all_that_takes_an_inode_counts(place: Place, fill: Callable[[Place], None]) -> None:
    fill(place)
    assert place.fill() == MOST - 7


def test_no_upload_waits_for_a_long_count(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    go, counted, before = threading.Event(), threading.Event(), threading.active_count()

    def names(bucket: str, *, stop: Callable[[], bool]) -> int:
        while not stop():
            if go.wait(0.001):
                counted.set()
                return 2 * MOST
        return 0

    monkeypatch.setattr(place.objects, "names", names)
    monkeypatch.setattr(object_limit, "_INLINE_S", 0.0)
    monkeypatch.setattr(object_limit, "_GOOD_FOR_S", 3600.0)
    monkeypatch.setattr(object_limit, "_RECOUNT_S", 3600.0)
    limit = ObjectLimit(place.objects, lambda org: [f"{org}-data"], MOST)
    for _ in range(3):
        limit.check("one")
    assert threading.active_count() == before + 1, "one count at a time"
    limit.check("other", MOST)
    go.set()
    assert counted.wait(30)
    while threading.active_count() > before:
        threading.Event().wait(0.001)
    with pytest.raises(QuotaExceeded):
        limit.check("one")


def test_buckets_without_end(place: Place) -> None:
    for name in ("first", "second"):
        place.storage.create_bucket(place.one, name)
    with pytest.raises(QuotaExceeded, match="one has 3 buckets") as refused:
        place.storage.create_bucket(place.one, "third")
    assert "storage.buckets_per_org" in str(refused.value.allowed)
    assert place.storage.create_bucket(place.one, "second").org == "one", (
        "one that is there is no new one"
    )
    place.storage.create_bucket(place.other, "theirs")


def test_users_without_end(place: Place) -> None:
    owner = place.identities.create_key(place.one, "olga", role=Role.OWNER)
    users = Users(place.store, place.identities, system_clock, most=3)
    for name in ("first", "second"):
        users.create(owner, accounts.NewUser(name=name, role="viewer"))
    with pytest.raises(QuotaExceeded, match="one has 3 users") as refused:
        users.create(owner, accounts.NewUser(name="third", role="viewer"))
    assert "keys.users_per_org" in str(refused.value.allowed)


@pytest.mark.parametrize(
    "free", [(2**30 - 1, 2**40, 0.5), (2**30 - 1, 2**35, 0.5), (2**39, 2**40, 0.019)]
)
def test_the_last_of_the_disk_is_for_jobs_and_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: tuple[float, float, float]
) -> None:
    place = Place(tmp_path, StorageSettings())
    place.put("before")
    begun = place.storage.upload("one", "one-data", "begun")
    begun.write(b"x")
    monkeypatch.setattr(place.objects, "free", lambda: free)
    with pytest.raises(OutOfSpace, match="the server's disk"):
        begun.write(b"x")
    begun.abort()
    for org in ("one", "other"):
        with pytest.raises(OutOfSpace, match="nothing is stored any more"):
            place.put("more", org)
    with pytest.raises(OutOfSpace):
        place.uploads.begin("one", "one-data", BeginUpload(key="whole"))
    assert place.storage.delete("one", "one-data", "before").key == "before"
    monkeypatch.setattr(place.objects, "free", lambda: (2**26, 2**30, 0.5))
    place.put("small", "one")  # of a small disk, a twentieth is left

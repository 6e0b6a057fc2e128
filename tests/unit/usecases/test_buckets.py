"""Buckets as a killed server leaves them: a start makes each whole, and nothing is handed to
another.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cloud_ml.domain.tenancy import BUCKET, ORGANISATION, SYSTEM
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.storage.objects import Storage


def test_a_start_repairs_what_a_killed_server_has_left(tmp_path: Path) -> None:
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path)
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    for name in ("whole", "without-folder"):
        storage.create_bucket(org, name)
    (tmp_path / "without-folder").rmdir()
    for name in ("without-record", "with-content"):
        objects.create_bucket(name)
    objects.put("with-content", "a/b", b"kept")
    storage.repair()
    assert list(objects.buckets()) == ["whole", "with-content", "without-folder"]
    storage.create_bucket(org, "with-content")
    assert storage.list(org.name, "with-content").objects == []
    kept = list((tmp_path / ".orphans").rglob("b"))
    assert [path.read_bytes() for path in kept] == [b"kept"]


class Killed(BaseException):
    """The process ends here."""


def test_a_start_ends_a_removal_with_force_that_a_killed_server_began(tmp_path: Path) -> None:
    """The folder is gone, and the record was still there: it became an empty bucket."""
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path)
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    for name in ("doomed", "lost", "kept"):
        storage.create_bucket(org, name)
        objects.put(name, "a/b", b"content")
    objects.delete_folder("lost", "a")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(store, "delete", Mock(side_effect=Killed))
        storage.delete_bucket(org, "doomed", force=True)
    (tmp_path / "lost").rmdir()
    storage.repair()
    assert [bucket.name for bucket in storage.buckets(org.name)] == ["kept", "lost"]
    assert list(objects.buckets()) == ["kept", "lost"]
    assert list((tmp_path / ".removed").iterdir()) == []
    storage.create_bucket(org, "doomed")
    storage.repair()
    assert list(objects.buckets()) == ["doomed", "kept", "lost"]


def test_a_removal_that_is_killed_again_while_a_start_ends_it(tmp_path: Path) -> None:
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path)
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    storage.create_bucket(org, "doomed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "delete", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            storage.delete_bucket(org, "doomed", force=True)
        with pytest.raises(Killed):
            storage.repair()
    storage.repair()
    assert storage.buckets(org.name) == []
    assert list(objects.buckets()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to users of organisations")
def test_a_start_repairs_owners_of_empty_buckets_and_names_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As an earlier version left them, where removing and making buckets raced."""
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path, lambda tenant: 70_000 + tenant)
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    own = 70_000 + org.number
    for name in ("empty", "full", "right"):
        storage.create_bucket(org, name)
    objects.put("full", "theirs", b"content")
    (tmp_path / "empty" / "left" / "behind").mkdir(parents=True)
    for place in ("empty", "empty/left", "full", "full/theirs"):
        os.chown(tmp_path / place, 70_099, 70_099)
    storage.repair()
    owners = {name: (tmp_path / name).stat().st_uid for name in ("empty", "full", "right")}
    assert owners == {"empty": own, "full": 70_099, "right": own}, (
        "nobody can tell whose files they are"
    )
    assert f"chown -hR --from=70099 {own}:{own} {tmp_path / 'full'}" in caplog.text
    objects.put("empty", "left/again", b"x")
    assert {path.stat().st_uid for path in (tmp_path / "empty").rglob("*")} == {own}


class LosesAnswers(MemoryStateStore):
    """Makes records of buckets, and loses the answer, as a database does that goes away."""

    commits = True

    def create(self, kind: Any, **fields: Any) -> Any:
        if kind is not BUCKET:
            return super().create(kind, **fields)
        if self.commits:
            super().create(kind, **fields)
        raise Unavailable("the database went away")


@pytest.mark.parametrize("commits", [True, False])
def test_no_record_is_left_without_a_folder_where_the_database_goes_away(
    commits: bool, tmp_path: Path
) -> None:
    """No job of the organisation could start until the server did."""
    store, objects = LosesAnswers(), LocalObjectStore(tmp_path)
    store.commits = commits
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    with pytest.raises(Unavailable):
        storage.create_bucket(org, "new")
    assert objects.has_bucket("new")
    assert storage.mountable(org.name) == (["new"] if commits else [])
    storage.repair()
    assert list(objects.buckets()) == (["new"] if commits else [])


def test_what_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path)
    storage = Storage(store, objects, system_clock)
    identities = Identities(store, system_clock)
    gone = identities.create_organisation("gone")
    record = store.find(ORGANISATION, SYSTEM, "gone")
    assert record is not None
    store.request_delete(ORGANISATION, record.key.uid, now=system_clock())
    with pytest.raises(Conflict):
        storage.create_bucket(gone, "new")
    assert list(objects.buckets()) == []


def test_a_record_that_cannot_be_taken_back_keeps_its_folder(tmp_path: Path) -> None:
    """The organisation goes while its bucket is made, and then the database does."""
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path)
    storage = Storage(store, objects, system_clock)
    org = Identities(store, system_clock).create_organisation("mine")
    claim = storage._buckets._claim

    def and_the_organisation_goes(*given: Any) -> Any:
        made = claim(*given)
        record = store.find(ORGANISATION, SYSTEM, "mine")
        assert record is not None
        store.request_delete(ORGANISATION, record.key.uid, now=system_clock())
        return made

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Conflict):
        patch.setattr(storage._buckets, "_claim", and_the_organisation_goes)
        patch.setattr(store, "delete", Mock(side_effect=Unavailable("the database went away")))
        storage.create_bucket(org, "new")
    assert objects.has_bucket("new")
    assert storage.mountable("mine") == ["new"]

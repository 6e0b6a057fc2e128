"""Buckets of a gang become folders of this machine, or the attempt is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cloud_ml.engines.base import Gang, GangKey, Mount
from cloud_ml.engines.local.resolved_gang import BoundFolder, ResolvedGang, resolve
from cloud_ml.models import codec
from cloud_ml.objects.local import LocalObjectStore


def gang(*buckets: str) -> Gang:
    mounts = tuple(Mount(name, f"/storage/{name}", writable=True) for name in buckets)
    return Gang(GangKey("job", 1), 1, (), mounts=mounts)


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path)
    store.create_bucket("one")
    return store


def test_each_mount_gets_its_folder(store: LocalObjectStore, tmp_path: Path) -> None:
    resolved = resolve(gang("one"), store)
    assert resolved.folders == (BoundFolder(str(tmp_path / "one"), "/storage/one", writable=True),)
    assert (resolved.refusal, resolved.key) == ("", GangKey("job", 1))
    told = codec.decode(ResolvedGang, codec.encode(resolved), ignore_unknown=True)
    assert told == resolved


def test_a_lost_folder_refuses_the_whole_attempt(store: LocalObjectStore) -> None:
    resolved = resolve(gang("one", "lost", "gone"), store)
    assert resolved.folders == ()
    assert resolved.refusal == (
        "the server has lost the folder of the bucket gone, lost; ask its operator to start it "
        "again"
    )


def test_an_engine_without_a_store_refuses_what_mounts_a_bucket() -> None:
    assert "no access to the bucket one" in resolve(gang("one"), None).refusal
    assert resolve(gang(), None).refusal == ""


def test_a_store_that_cannot_be_read_refuses_nothing(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match=r"No such file"):
        resolve(gang("one"), store)

"""Buckets as a killed server leaves them: a start makes each whole, and nothing is handed to another."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.identities import Identities
from cloud_ml.usecases.storage import Storage


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

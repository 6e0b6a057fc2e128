"""Every object store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.objects.base import LocalFolders, ObjectStore
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.testing.objects import ObjectStoreContract


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore()


class TestLocal(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalObjectStore(tmp_path / "objects")

    def test_it_offers_its_folders(self, store: ObjectStore) -> None:
        assert isinstance(store, LocalFolders)

"""Copies of trainers by digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.controller.programs.model_requirements import ModelRequirements
from cloud_ml.controller.programs.model_server import ModelServerPackage
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.errors import NotFound
from cloud_ml.models.common import ObjectUri
from cloud_ml.objects.base import ObjectInfo
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.objects.memory import MemoryObjectStore

URI = ObjectUri("bucket", "folder/trainer-1.0.tar.gz")


@pytest.fixture
def objects() -> MemoryObjectStore:
    store = MemoryObjectStore()
    store.create_bucket("bucket")
    store.put(URI.bucket, URI.key, b"first")
    return store


def test_a_trainer_is_copied_under_its_digest(objects: MemoryObjectStore, tmp_path: Path) -> None:
    packages = Packages(objects, tmp_path)
    source = packages.fetch(URI)
    assert source == TrainerSource(hashlib.sha256(b"first").hexdigest(), "trainer-1.0.tar.gz")
    file = packages.file(source.digest, source.name)
    assert file.read_bytes() == b"first"
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("digest", ["0" * 64, "", "..", "x" * 64])
def test_what_is_not_kept_is_not_found(
    objects: MemoryObjectStore, tmp_path: Path, digest: str
) -> None:
    packages = Packages(objects, tmp_path / "packages")
    name = packages.fetch(URI).name
    (tmp_path / name).touch()
    with pytest.raises(NotFound, match=name):
        packages.file(digest, name)


def test_the_copy_outlives_what_happens_to_the_object(
    objects: MemoryObjectStore, tmp_path: Path
) -> None:
    packages = Packages(objects, tmp_path)
    before = packages.fetch(URI)
    objects.put(URI.bucket, URI.key, b"second")
    after = packages.fetch(URI)
    assert packages.file(before.digest, before.name).read_bytes() == b"first"
    assert packages.file(after.digest, after.name).read_bytes() == b"second"


def test_an_unchanged_object_is_read_once(objects: MemoryObjectStore, tmp_path: Path) -> None:
    packages = Packages(objects, tmp_path)
    first = packages.fetch(URI)
    objects.read = None  # type: ignore[method-assign, assignment]
    assert packages.fetch(URI) == first


@pytest.mark.parametrize(
    "uri", [ObjectUri("bucket", "none"), ObjectUri("missing", "x"), ObjectUri("bucket", "folder")]
)
def test_what_is_not_there_is_a_problem_not_an_error(
    objects: MemoryObjectStore, tmp_path: Path, uri: ObjectUri
) -> None:
    source = Packages(objects, tmp_path).fetch(uri)
    assert source.problem == f"the trainer {uri} does not exist"


def test_what_nobody_uses_is_dropped_and_copied_again_when_asked_for(
    objects: MemoryObjectStore, tmp_path: Path
) -> None:
    packages = Packages(objects, tmp_path)
    source = packages.fetch(URI)
    path = packages.file(source.digest, source.name)
    packages.prune()
    assert path.exists()
    os.utime(path, (0, 0))
    packages.prune()
    assert list(tmp_path.iterdir()) == []
    assert packages.fetch(URI) == source
    assert path.read_bytes() == b"first"


def test_the_wheel_of_a_model_server_stays_while_replicas_start_from_it(
    objects: MemoryObjectStore, tmp_path: Path
) -> None:
    """It went a week after it had been made, also between its choice and the start."""
    for wheels in (ModelServerPackage(tmp_path), ModelServerPackage(tmp_path)):  # before, and after
        source = wheels.source(ModelRequirements("python"))
        path = Packages(objects, tmp_path).file(source.digest, source.name)
        os.utime(path, (0, 0))
        assert wheels.source(ModelRequirements("python")) == source
        Packages(objects, tmp_path).prune()
        assert path.exists()


def test_what_a_server_left_that_was_killed_while_it_copied_is_dropped(
    objects: MemoryObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each such file may have the size of the largest trainer."""
    drafts: set[Path] = set()
    read = objects.read

    def looked(bucket: str, key: str) -> tuple[ObjectInfo, Iterator[bytes]]:
        info, chunks = read(bucket, key)

        def watched() -> Iterator[bytes]:
            yield from chunks
            drafts.update(tmp_path.iterdir())

        return info, watched()

    monkeypatch.setattr(objects, "read", looked)
    packages = Packages(objects, tmp_path)
    packages.fetch(URI)
    (draft,) = drafts
    assert not draft.exists()
    draft.touch()  # as if the server had been killed then
    packages.prune()
    assert draft.exists(), "it may be one that is being written"
    os.utime(draft, (0, 0))
    packages.prune()
    assert not draft.exists()


def test_a_trainer_that_is_too_large_is_not_copied(tmp_path: Path) -> None:
    """A job makes a file of holes as large as it likes; copied, it would be as large on the
    server's disk.
    """
    store = LocalObjectStore(tmp_path / "objects")
    store.create_bucket("bucket")
    (store.folder("bucket") / "huge.tar.gz").touch()
    os.truncate(store.folder("bucket") / "huge.tar.gz", 2**43)
    source = Packages(store, tmp_path / "packages", size_limit=1000).fetch(
        ObjectUri("bucket", "huge.tar.gz")
    )
    assert source.problem == "the trainer fds://bucket/huge.tar.gz has more than 1000 bytes"
    assert not (tmp_path / "packages").exists()

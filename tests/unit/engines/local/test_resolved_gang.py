"""Buckets of a gang become folders of this machine, or the attempt is refused."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cloud_ml.controller.programs.packages import Packages
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import EnvironmentPlan, Gang, GangKey, Mount, TrainerSource
from cloud_ml.engines.local.isolation.bind_mounts import BindMount, identity
from cloud_ml.engines.local.resolved_gang import ResolvedGang, resolve
from cloud_ml.errors import Unavailable
from cloud_ml.models import codec
from cloud_ml.models.common import ObjectUri
from cloud_ml.objects.local import LocalObjectStore

DIGEST = hashlib.sha256(b"code").hexdigest()


def gang(*buckets: str, trainer: TrainerSource | None = None) -> Gang:
    mounts = tuple(Mount(name, f"/storage/{name}", writable=True) for name in buckets)
    return Gang(GangKey("job", 1), 1, (), EnvironmentPlan(trainer), mounts=mounts)


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path)
    store.create_bucket("one")
    return store


def test_each_mount_gets_its_folder(store: LocalObjectStore, tmp_path: Path) -> None:
    resolved = resolve(gang("one"), store)
    folder = str(tmp_path / "one")
    assert resolved.folders == (
        BindMount(folder, "/storage/one", writable=True, identity=identity(folder)),
    )
    assert (resolved.refusal, resolved.key) == ("", GangKey("job", 1))
    decoded = codec.decode(ResolvedGang, codec.encode(resolved), ignore_unknown=True)
    assert decoded == resolved


def test_a_bucket_that_is_gone_has_the_attempt_planned_again(store: LocalObjectStore) -> None:
    with pytest.raises(Unavailable, match="the bucket gone is gone"):
        resolve(gang("one", "gone"), store)


def test_an_engine_without_a_store_refuses_what_mounts_a_bucket() -> None:
    assert "no access to the bucket one" in resolve(gang("one"), None).refusal
    assert resolve(gang(), None).refusal == ""


def test_a_store_that_cannot_be_read_refuses_nothing(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match=r"No such file"):
        resolve(gang("one"), store)


def test_the_trainer_is_found_by_its_digest(store: LocalObjectStore, tmp_path: Path) -> None:
    packages = Packages(store, tmp_path / "packages")
    store.put("one", "t.tar.gz", b"code")
    source = packages.fetch(ObjectUri("one", "t.tar.gz"))
    assert source == TrainerSource(DIGEST, "t.tar.gz")
    resolved = resolve(gang("one", trainer=source), store, packages)
    assert resolved.trainer_file == str(tmp_path / "packages" / DIGEST / "t.tar.gz")
    assert (resolved.refusal, len(resolved.folders)) == ("", 1)


def test_a_trainer_that_is_not_kept_refuses_the_attempt(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    source = TrainerSource(DIGEST, "t.tar.gz")
    for packages in (Packages(store, tmp_path / "packages"), None):
        resolved = resolve(gang(trainer=source), store, packages)
        assert resolved.refusal_reason is Reason.TRAINER_NOT_FOUND
        assert "trainer t.tar.gz" in resolved.refusal


def test_a_trainer_with_a_problem_is_not_looked_for() -> None:
    problem = TrainerSource("", "t", "it is gone")
    assert resolve(gang(trainer=problem), None).refusal == ""


def test_a_gang_of_the_version_before_is_read() -> None:
    """A server hands it over, and a spawner of another version reads it."""
    document = codec.encode(gang())
    for added in ("stopped_last", "launcher", "busy_waits", "idle_cores"):
        del document[added]
    read = codec.decode(Gang, document, ignore_unknown=True)
    assert (read.stopped_last, read.launcher) == ((), "")
    document["of_the_next_version"] = 1
    assert codec.decode(ResolvedGang, document, ignore_unknown=True).key == gang().key

"""Which checkpoints of a job go, and what keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.comparison.rerun import rerun_of
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint, is_referred, split_key, without
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, StaleRevision
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.objects.local.store import LocalObjectStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from support.jobs import NOW, spec_of
from support.platform import TRAINER, Served

pytestmark = pytest.mark.anyio
ROOM = Capacity(4000, 2**33)


def submitted(served: Served, name: str, **fields: Any) -> TrainJobRecord:
    return served.platform.jobs.submit(
        served.admin.identity, TrainJob(name, "trainer.task", TRAINER, **fields), ROOM
    )


@pytest.fixture
def job(served: Served) -> TrainJobRecord:
    return submitted(served, "linear", checkpoint={"keep": 2})


def current(served: Served, job: TrainJobRecord) -> TrainJobRecord:
    found = served.platform.store.get(TRAIN_JOB, job.key.uid)
    assert found is not None
    return found


def put(served: Served, job: TrainJobRecord, path: str, content: bytes = b"12345") -> None:
    key = f".checkpoints/{job.key.name}-{job.key.uid}/{path}"
    served.platform.objects.put(served.platform.checkpoints.bucket(job), key, content)


def saved(served: Served, job: TrainJobRecord, *paths: str) -> None:
    """Have checkpoints of these paths, each later than the one before."""
    for path in paths:
        put(served, job, path)
    noted(served, job, *paths)


def noted(served: Served, job: TrainJobRecord, *paths: str) -> None:
    """Have these paths reported."""
    entries = [
        {"path": path, "step": number, "time": float(number)}
        for number, path in enumerate(paths, start=1)
    ]
    put(served, job, ".saved.jsonl", "\n".join(map(json.dumps, entries)).encode())


def superseded(served: Served, job: TrainJobRecord) -> list[str]:
    return [one.path for one in served.platform.checkpoints.superseded(current(served, job))]


def left(served: Served, job: TrainJobRecord) -> list[str]:
    return [one.path for one in served.platform.checkpoints.of(current(served, job)).items]


def commit(
    served: Served, job: TrainJobRecord, doomed: Sequence[NotedCheckpoint]
) -> TrainJobRecord:
    return served.platform.store.commit_status(
        TRAIN_JOB,
        job.key.uid,
        replace(job.status, dropped_checkpoints=tuple(doomed)),
        expected_revision=job.revision,
        fence=None,
        now=NOW,
    )


def uri_of(job: TrainJobRecord, path: str) -> str:
    return f"fds://cloudml/.checkpoints/{job.key.name}-{job.key.uid}/{path}"


async def test_all_but_the_newest_go_the_oldest_first(served: Served, job: TrainJobRecord) -> None:
    assert superseded(served, job) == []
    saved(served, job, "a", "b")
    assert superseded(served, job) == []
    saved(served, job, "a", "b", "c", "d")
    assert superseded(served, job) == ["a", "b"]
    doomed = served.platform.checkpoints.superseded(job)
    served.platform.checkpoints.remove(job, doomed, lambda: False)
    assert left(served, job) == ["c", "d"]


async def test_what_is_not_reported_stays(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "model.ckpt-9.index")
    put(served, job, "checkpoint", b'model_checkpoint_path: "model.ckpt-9"\n')
    put(served, job, "notes.txt")
    saved(served, job, "a", "b", ".saved.jsonl", "checkpoint")
    found = served.platform.checkpoints.superseded(job)
    assert {one.path for one in found} == {"a", "b"}
    served.platform.checkpoints.remove(job, found, lambda: False)
    assert served.platform.objects.head("cloudml", uri_of(job, "notes.txt")[14:]) is not None


async def test_folders_and_files_of_tensorflow_go_as_a_whole(
    served: Served, job: TrainJobRecord
) -> None:
    checkpoints, objects = served.platform.checkpoints, served.platform.objects
    files = ["x/1", "x/y/2", "ckpt-1.index", "ckpt-1.data-00000-of-00002"]
    for file in (*files, "ckpt-1.data-00001-of-00002", "ckpt-10.index"):
        put(served, job, file)
    noted(served, job, "x", "ckpt-1", "ckpt-10", "b")
    put(served, job, "b")
    found = checkpoints.superseded(job)
    assert [one.path for one in found] == ["x", "ckpt-1"]
    checkpoints.remove(job, found, lambda: False)
    names = [one.key.rpartition("/")[2] for one in objects.list("cloudml", ".checkpoints/").objects]
    assert sorted(names) == [".saved.jsonl", "b", "ckpt-10.index"]
    put(served, job, "ckpt-1.data-00000-of-00002")
    checkpoints.remove_rest(job, found)
    names = [one.key.rpartition("/")[2] for one in objects.list("cloudml", ".checkpoints/").objects]
    assert sorted(names) == [".saved.jsonl", "b", "ckpt-10.index"]


@pytest.mark.parametrize(
    ("doomed", "newer"), [("run", "run/step-2"), ("run/step-1", "run"), ("ckpt", "ckpt.index")]
)
async def test_what_holds_a_newer_one_stays(
    served: Served, job: TrainJobRecord, doomed: str, newer: str
) -> None:
    for path in (doomed, newer):
        put(served, job, path if "/" in path or "." in path else f"{path}/file")
    put(served, job, "z")
    noted(served, job, doomed, newer, "z")
    assert superseded(served, job) == []


async def test_what_was_saved_again_since_stays(served: Served, job: TrainJobRecord) -> None:
    saved(served, job, "a", "b", "c")
    (old,) = served.platform.checkpoints.superseded(job)
    saved(served, job, "x", "b", "c", "a")
    served.platform.checkpoints.remove(job, [old], lambda: False)
    committed = commit(served, current(served, job), [old])
    assert "a" in left(served, committed)
    assert served.platform.checkpoints.newest(committed) == "a"


async def test_nothing_goes_on_from_what_is_about_to_go(
    served: Served, job: TrainJobRecord
) -> None:
    saved(served, job, "a", "b", "c")
    committed = commit(served, current(served, job), served.platform.checkpoints.superseded(job))
    assert left(served, committed) == ["b", "c"]
    for path in ("b", "c"):
        served.platform.checkpoints._objects.delete("cloudml", uri_of(job, path)[14:])
    assert served.platform.checkpoints.newest(committed) == ""


async def test_a_reference_keeps_a_checkpoint(served: Served, job: TrainJobRecord) -> None:
    saved(served, job, "a", "b", "c", "d", "e")
    submitted(served, "first", restore_from=uri_of(job, "a"))
    assert superseded(served, job) == ["b", "c"]
    submitted(served, "second", job_args=f"--init={uri_of(job, 'b')}/part")
    assert superseded(served, job) == ["c"]
    submitted(served, "third", environment={"INIT": uri_of(job, "c")})
    assert superseded(served, job) == []
    submitted(served, "fourth", restore_from="linear")
    saved(served, job, "a", "b", "c", "d", "e", "f", "g")
    assert superseded(served, job) == ["d"], "a job by its name refers to its newest one"


async def test_a_reference_to_the_folder_keeps_all(served: Served, job: TrainJobRecord) -> None:
    saved(served, job, "a", "b", "c")
    assert served.platform.references.refer("cloudml-none", [uri_of(job, "")]) == ""
    assert superseded(served, job) == ["a"], "another organisation keeps nothing"
    org = job.key.org
    for strange in ("", "fds://", "fds://cloudml/.checkpoints", "fds://cloudml/.checkpoints/x-y/z"):
        assert served.platform.references.refer(org, [strange]) == ""
    assert served.platform.references.refer(org, [uri_of(job, "")]) == ""
    assert superseded(served, job) == []


async def test_a_job_that_keeps_everything_notes_no_references(served: Served) -> None:
    plain = submitted(served, "plain")
    saved(served, plain, "a")
    submitted(served, "refers", restore_from="plain")
    assert current(served, plain).revision == plain.revision


async def test_a_reference_that_comes_second_is_refused(
    served: Served, job: TrainJobRecord
) -> None:
    saved(served, job, "a", "b", "c")
    commit(served, current(served, job), served.platform.checkpoints.superseded(job))
    with pytest.raises(InvalidRequest, match="is being removed") as refused:
        submitted(served, "late", restore_from=uri_of(job, "a"))
    assert refused.value.field == "restore_from"
    assert served.platform.store.find(TRAIN_JOB, job.key.org, "late") is None
    assert submitted(served, "newest", restore_from="linear").spec.workload.restore_from == (
        uri_of(job, "c")
    )


async def test_a_reference_that_comes_first_makes_the_removal_stale(
    served: Served, job: TrainJobRecord
) -> None:
    saved(served, job, "a", "b", "c")
    seen = current(served, job)
    doomed = served.platform.checkpoints.superseded(seen)
    submitted(served, "first", restore_from=uri_of(job, "a"))
    with pytest.raises(StaleRevision):
        commit(served, seen, doomed)
    assert superseded(served, job) == []


async def test_very_many_references_keep_all(served: Served, job: TrainJobRecord) -> None:
    for number in range(202):
        served.platform.references.refer(job.key.org, [uri_of(job, f"x-{number}")])
    assert current(served, job).spec.workload.referred_checkpoints == ("",)


async def test_a_reference_of_a_very_long_path_keeps_all(
    served: Served, job: TrainJobRecord
) -> None:
    served.platform.references.refer(job.key.org, [uri_of(job, "x" * 1001)])
    assert current(served, job).spec.workload.referred_checkpoints == ("",)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"checkpoint": {"keep": 0}}, "checkpoint.keep"),
        ({"checkpoint": {"keep": 101}}, "checkpoint.keep"),
        ({"checkpoint": {"keep": "all"}}, "checkpoint.keep"),
        ({"checkpoint": {"kept": 1}}, "checkpoint.kept"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"checkpoint": {"keep": 1}, "array": "0-3"}, "checkpoint.keep"),
        ({"checkpoint": {"keep": 1, "path": "fds://cloudml/a"}}, "checkpoint.keep"),
        ({"checkpoint": {"path": "/tmp/a"}}, "checkpoint.path"),
        ({"checkpoint": {"path": "fds://cloudml"}}, "checkpoint.path"),
        ({"checkpoint": {"path": "fds://cloudml/a/../../b"}}, "checkpoint.path"),
        ({"checkpoint": {"path": "fds://cloudml/.checkpoints/linear-u1"}}, "checkpoint.path"),
        ({"checkpoint": {"path": "fds://cloudml/.outputs/linear-u1"}}, "checkpoint.path"),
        ({"checkpoint": {"path": 3}}, "checkpoint.path"),
    ],
)
async def test_bad_values_are_refused_by_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        spec_of(**fields)
    assert refused.value.field == field
    assert refused.value.allowed


async def test_a_folder_of_checkpoints_is_in_a_bucket_of_the_organisation(served: Served) -> None:
    for policy in ({"path": "fds://others/a"}, {"path": "fds://nowhere/a"}):
        with pytest.raises(InvalidRequest) as refused:
            submitted(served, "linear", checkpoint=policy, check_uris=False)
        assert refused.value.field == "checkpoint.path"
        assert "there is no such bucket" in str(refused.value)


async def test_a_folder_that_others_may_use_is_never_removed(served: Served) -> None:
    job = submitted(served, "linear", checkpoint={"path": "fds://cloudml/kept/"})
    served.platform.objects.put("cloudml", "kept/step-1", b"state")
    served.platform.checkpoints.remove_all(job)
    assert [one.key for one in served.platform.objects.list("cloudml").objects] == ["kept/step-1"]
    again = rerun_of(job, "again")
    assert again.checkpoint is None
    own = submitted(served, "other", checkpoint={"keep": 2})
    assert rerun_of(own, "again").checkpoint == own.spec.submitted.checkpoint


async def test_paths_of_references() -> None:
    assert split_key(".checkpoints/a-job-0af3/x/y") == ("0af3", "x/y")
    assert split_key("other/a-job-0af3/x") == ("", "")
    assert is_referred("step-1", ["step-1/file"])
    assert is_referred("step-1", [""])
    assert not is_referred("step-1", ["step-10", "step"])
    old, new = (NotedCheckpoint("a", 1, NOW), NotedCheckpoint("b", 2, NOW))
    assert list(without([new, old], [old])) == [new]


async def test_links_that_a_job_has_made_are_not_followed(tmp_path: Path) -> None:
    """Whatever a job reports, nothing goes that is not below its own folder."""
    store, objects = MemoryStateStore(), LocalObjectStore(tmp_path / "objects")
    objects.create_bucket("cloudml")
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").write_text("kept")

    class OneBucket:
        def owns(self, org: str, bucket: str) -> bool:
            return bucket == "cloudml"

    job = store.create(
        TRAIN_JOB,
        org="o",
        name="linear",
        owner="u",
        spec=spec_of(checkpoint={"keep": 1}, fds_bucket="cloudml"),
        status=WorkloadStatus(),
        now=NOW,
    )
    checkpoints = Checkpoints(store, OneBucket(), objects)  # type: ignore[arg-type]
    folder = objects.folder("cloudml") / f".checkpoints/linear-{job.key.uid}"
    folder.mkdir(parents=True)
    paths = ("link", "link/inner", "link/inner/file", "file", "../outside", "inner", "last")
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "inner" / "file")
    (folder / "inner").mkdir()
    (folder / "inner" / "up").symlink_to(outside)
    (folder / "inner" / "own").write_text("own")
    (folder / "last").write_text("last")
    lines = [json.dumps({"path": one, "step": 1, "time": at}) for at, one in enumerate(paths)]
    (folder / ".saved.jsonl").write_text("\n".join(lines))
    found = checkpoints.superseded(job)
    assert "last" not in [one.path for one in found]
    every = [NotedCheckpoint(one, 1, NOW) for one in paths[:-1]]
    checkpoints.remove(job, [*found, *every], lambda: False)
    checkpoints.remove_rest(job, every)
    assert (outside / "inner" / "file").read_text() == "kept"
    assert not (folder / "inner").exists()
    assert (folder / "last").exists()

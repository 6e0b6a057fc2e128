"""The checkpoints of a job, as its bucket shows them."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from support.platform import TRAINER, Served

pytestmark = pytest.mark.anyio


@pytest.fixture
def job(served: Served) -> TrainJobRecord:
    train_job = TrainJob("linear", "trainer.task", TRAINER)
    return served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))


def put(served: Served, job: TrainJobRecord, path: str, content: bytes = b"12345") -> None:
    key = f".checkpoints/linear-{job.key.uid}/{path}"
    served.platform.objects.put(served.platform.checkpoints.bucket(job), key, content)


def note(served: Served, job: TrainJobRecord, *entries: tuple[str, int, float]) -> None:
    lines = [json.dumps({"path": path, "step": step, "time": at}) for path, step, at in entries]
    put(served, job, ".saved.jsonl", "\n".join(lines).encode())


async def test_only_what_is_there_is_told_the_oldest_first(
    served: Served, job: TrainJobRecord
) -> None:
    found = served.platform.checkpoints.of(job)
    assert (found.uri, found.items, served.platform.checkpoints.newest(job)) == ("", [], "")
    assert served.platform.checkpoints.newest_noted(job) is None
    put(served, job, "step-1.pt")
    put(served, job, "folder/a")
    put(served, job, "folder/b")
    note(served, job, ("step-1.pt", 1, 10), ("folder", 2, 20), ("gone", 3, 30))
    found = served.platform.checkpoints.of(job)
    assert [(one.path, one.step, one.size) for one in found.items] == [
        ("step-1.pt", 1, 5),
        ("folder", 2, 10),
    ]
    assert found.uri == f"fds://cloudml/.checkpoints/linear-{job.key.uid}"
    assert found.items[1].uri == f"{found.uri}/folder"
    assert served.platform.checkpoints.newest(job) == "folder"
    assert served.platform.checkpoints.newest_noted(job) == NotedCheckpoint(
        "folder", 2, datetime.fromtimestamp(20, UTC)
    )


async def test_tensorflows_files_are_one_checkpoint(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "model.ckpt-9.index")
    put(served, job, "model.ckpt-9.data-00000-of-00001")
    put(served, job, "checkpoint", b'model_checkpoint_path: "model.ckpt-9"\n')
    (found,) = served.platform.checkpoints.of(job).items
    assert (found.path, found.step, found.size) == ("model.ckpt-9", 9, 10)


async def test_a_long_note_is_read_from_its_end(served: Served, job: TrainJobRecord) -> None:
    for number in (1, 5000):
        put(served, job, f"step-{number}")
    note(served, job, *[(f"step-{number}", number, number) for number in range(1, 5001)])
    assert served.platform.checkpoints.newest(job) == "step-5000"


async def test_they_are_asked_for_over_http(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "a")
    put(served, job, ".saved.jsonl", b'{"path": "a", "step": 1, "time": 10, "attempt": 2}')
    answer = await served.admin.call("GET", "/api/v1/jobs/linear/checkpoints")
    assert answer.status == 200
    (item,) = answer.json()["items"]
    assert (item["saved_at"], item["attempt"]) == ("1970-01-01T00:00:10.000000Z", 2)
    assert (await served.stranger.call("GET", "/api/v1/jobs/linear/checkpoints")).status == 404


async def test_the_description_of_a_job_names_the_newest_one(
    served: Served, job: TrainJobRecord
) -> None:
    put(served, job, "a")
    first = await served.admin.call("GET", "/api/v1/jobs/linear")
    assert first.json()["checkpoint"] is None
    tag = {"If-None-Match": first.headers["etag"]}
    assert (await served.admin.call("GET", "/api/v1/jobs/linear", headers=tag)).status == 304
    put(served, job, ".saved.jsonl", b'{"path": "a", "step": 1, "time": 10, "attempt": 2}')
    second = await served.admin.call("GET", "/api/v1/jobs/linear", headers=tag)
    assert second.status == 200, "the record has not changed, and its description has"
    assert second.json()["checkpoint"] == {
        "path": "a",
        "uri": f"fds://cloudml/.checkpoints/linear-{job.key.uid}/a",
        "step": 1,
        "saved_at": "1970-01-01T00:00:10.000000Z",
        "attempt": 2,
    }
    assert second.json()["revision"] == first.json()["revision"]
    tag = {"If-None-Match": second.headers["etag"]}
    assert (await served.admin.call("GET", "/api/v1/jobs/linear", headers=tag)).status == 304


async def test_a_job_is_described_while_all_threads_of_its_organisation_are_busy(
    served: Served, job: TrainJobRecord
) -> None:
    put(served, job, "a")
    note(served, job, ("a", 1, 10))
    platform, free = served.platform, threading.Event()
    looked = [
        asyncio.ensure_future(platform.offload.long(job.key.org, free.wait)) for _ in range(4)
    ]
    await asyncio.sleep(0)
    try:
        answer = await served.admin.call("GET", "/api/v1/jobs/linear")
    finally:
        free.set()
        await asyncio.gather(*looked)
    assert (answer.status, answer.json()["checkpoint"]) == (200, None)
    answer = await served.admin.call("GET", "/api/v1/jobs/linear")
    assert answer.json()["checkpoint"]["path"] == "a"


async def test_the_description_of_an_array_names_no_checkpoint(served: Served) -> None:
    train_job = TrainJob("linear", "trainer.task", TRAINER, recipe="array", array="0-1")
    array = served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))
    put(served, array, "a")
    note(served, array, ("a", 1, 10))
    assert served.platform.checkpoints.newest(array) == "a"
    assert served.platform.checkpoints.describe_newest(array) is None


async def test_a_job_goes_on_from_another_one(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "a")
    note(served, job, ("a", 1, 10))

    def submit(**fields: str) -> TrainJobRecord:
        train_job = TrainJob(
            f"next-{len(fields['restore_from'])}", "trainer.task", TRAINER, **fields
        )  # type: ignore[arg-type]
        return served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))

    by_name = submit(restore_from="linear")
    uri = f"fds://cloudml/.checkpoints/linear-{job.key.uid}/a"
    assert by_name.spec.workload.restore_from == uri
    assert submit(restore_from=uri).spec.workload.restore_from == uri
    assert submit(restore_from=f"{uri[:-2]}/").spec.workload.restore_from == uri, "its folder"
    for wrong, why in [
        ("next-6", "next-6 has saved none"),
        ("nobody", "there is no job nobody"),
        ("fds://nowhere/a", "nowhere"),
        ("../x", "there is no job"),
        ("fds://cloudml/typo.pt", "nothing at fds://cloudml/typo.pt"),
        ("fds://cloudml/../x", "nothing at"),
        ("fds://cloudml/", "nothing at"),
        ("fds://cloudml", "nothing at"),
    ]:
        with pytest.raises(InvalidRequest, match=why) as refused:
            submit(restore_from=wrong)
        assert refused.value.field == "restore_from"


async def test_an_event_tells_what_a_new_job_goes_on_from(
    served: Served, job: TrainJobRecord
) -> None:
    """A script that loads a file in its own folder began anew, and nothing said so."""
    put(served, job, "a")
    put(served, job, "sub/b-7")
    note(served, job, ("sub/b-7", 70, 10), ("a", 30, 20))
    folder = f"fds://cloudml/.checkpoints/linear-{job.key.uid}"
    served.platform.objects.put("cloudml", "kept/w-5", b"12345")
    advice = "your code loads the path in CLOUDML_RESTORE_FROM"

    def events(name: str, **fields: Any) -> list[str]:
        train_job = TrainJob(name, "trainer.task", TRAINER, **fields)
        made = served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))
        found = served.platform.store.events(made.key.uid)
        return [one.message for one in found if one.reason == "RestoreFrom"]

    for number, (source, given) in enumerate(
        [
            ("linear", f"{folder}/a (step 30)"),
            (folder, f"{folder}/a (step 30)"),
            (f"{folder}/sub/b-7", f"{folder}/sub/b-7 (step 70)"),
            ("fds://cloudml/kept/w-5", "fds://cloudml/kept/w-5 (step 5)"),
            ("fds://cloudml/kept/", "fds://cloudml/kept"),
        ]
    ):
        assert events(f"next-{number}", restore_from=source) == [f"to go on from {given}, {advice}"]
    assert events("anew") == []
    assert events("empty", checkpoint={"path": "fds://cloudml/kept"}) == []
    saved = json.dumps({"path": "w-5", "step": 50, "time": 10})
    served.platform.objects.put("cloudml", "kept/.saved.jsonl", saved.encode())
    (message,) = events("chosen", checkpoint={"path": "fds://cloudml/kept"})
    assert message == f"to go on from fds://cloudml/kept/w-5 (step 50), {advice}"


async def test_a_checkpoint_that_is_yet_to_come_is_taken_on_request(served: Served) -> None:
    uri = "fds://cloudml/soon.pt"
    train_job = TrainJob("early", "trainer.task", TRAINER, restore_from=uri, check_uris=False)
    job = served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))
    assert job.spec.workload.restore_from == uri


async def test_the_checkpoints_of_others_are_not_told(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "a")
    note(served, job, ("a", 1, 10))
    folder = f"fds://cloudml/.checkpoints/linear-{job.key.uid}"
    messages = []
    for source in ("linear", folder, f"{folder}/none", "fds://nowhere/a"):
        train_job = TrainJob("thief", "m", "git+https://example.org/code", restore_from=source)
        with pytest.raises(InvalidRequest) as refused:
            served.platform.jobs.submit(served.stranger.identity, train_job, Capacity(4000, 2**33))
        messages.append(refused.value.message.replace(source, "X"))
    assert messages[0] == "restore_from names no checkpoint: there is no job X"
    assert messages[1] == messages[2] == "restore_from is X, but there is no bucket cloudml"
    assert messages[3] == "restore_from is X, but there is no bucket nowhere"


async def test_folders_that_are_slow_to_look_into_keep_nobody_busy(
    served: Served, job: TrainJobRecord
) -> None:
    """Each of 300 notes had a folder with 100,000 files read through: it took a minute."""
    platform, looks = served.platform, 0
    put(served, job, "model.ckpt-9.index")
    put(served, job, "folder/a")
    names = [f"none-{number}" for number in range(250)]
    note(served, job, ("model.ckpt-9", 9, 1), ("folder", 8, 2), *[(name, 1, 9) for name in names])

    class Slow:
        now = 0.0

        def __getattr__(self, name: str) -> Any:
            return getattr(platform.objects, name)

        def list(self, *arguments: Any, **named: Any) -> Any:
            nonlocal looks
            looks, self.now = looks + 1, self.now + 0.9
            return platform.objects.list(*arguments, **named)

    slow = Slow()
    checkpoints = Checkpoints(
        platform.store,
        platform.storage,
        slow,
        monotonic=lambda: slow.now,  # type: ignore[arg-type]
    )
    assert checkpoints.newest(job) == "model.ckpt-9", "found without a look into a folder"
    assert looks == 3
    assert [one.path for one in checkpoints.of(job).items] == ["model.ckpt-9"]
    assert looks == 6


async def test_all_files_of_tensorflow_count(served: Served, job: TrainJobRecord) -> None:
    put(served, job, "ckpt-1.index")
    for number in range(3):
        put(served, job, f"ckpt-1.data-{number:05}-of-00003")
    note(served, job, ("ckpt-1", 1, 1))
    assert [one.size for one in served.platform.checkpoints.of(job).items] == [20]


@pytest.mark.parametrize("closed", [".saved.jsonl", "folder", "step-2"])
async def test_what_the_job_has_closed_is_no_checkpoint_and_no_failure(
    served: Served, job: TrainJobRecord, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def head_of_open(bucket: str, key: str, **options: Any) -> ObjectInfo | None:
        if key.endswith(f"/{closed}"):
            raise Conflict(f"{bucket}/{key} is closed by its permissions")
        return head(bucket, key, **options)

    for path in ("step-1", "step-2", "folder/a"):
        put(served, job, path)
    note(served, job, ("step-1", 1, 10), ("step-2", 2, 20), ("folder", 3, 30))
    head = served.platform.objects.head
    monkeypatch.setattr(served.platform.objects, "head", head_of_open)
    left = {"folder": "step-2", "step-2": "folder"}.get(closed, "")
    assert served.platform.checkpoints.newest(job) == left
    paths = [one.path for one in served.platform.checkpoints.of(job).items]
    assert closed not in paths


async def test_tasks_of_an_array_have_folders_of_their_own(served: Served) -> None:
    train_job = TrainJob("linear", "trainer.task", TRAINER, array="3,7,8")
    job = served.platform.jobs.submit(served.admin.identity, train_job, Capacity(4000, 2**33))
    for path in ("task-3/one", "task-7/two", "task-7/three", "task-9/stranger"):
        put(served, job, path)
    for task, times in (("task-3", {"one": 1}), ("task-7", {"two": 2, "gone": 3, "three": 4})):
        lines = [json.dumps({"path": path, "step": 1, "time": at}) for path, at in times.items()]
        put(served, job, f"{task}/.saved.jsonl", "\n".join(lines).encode())
    put(served, job, "task-9/.saved.jsonl", b'{"path": "stranger", "step": 1, "time": 1}')
    found = served.platform.checkpoints.of(job)
    assert [one.path for one in found.items] == ["task-3/one", "task-7/two", "task-7/three"]
    assert found.items[0].uri == f"{found.uri}/task-3/one"
    assert found.items[0].size == 5
    with pytest.raises(InvalidRequest, match="each task of linear has its own") as caught:
        served.platform.jobs.submit(
            served.admin.identity,
            TrainJob("next", "trainer.task", TRAINER, restore_from="linear"),
            Capacity(4000, 2**33),
        )
    assert "cloudml jobs checkpoints linear" in (caught.value.hint or "")

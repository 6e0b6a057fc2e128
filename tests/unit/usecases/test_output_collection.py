from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import QuotaSpec
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads.outputs import JobFile
from cloud_ml.engines.abilities import WorkingDirectory
from cloud_ml.engines.base import Capacity
from cloud_ml.engines.local.files import job_files
from cloud_ml.errors import CloudMlError, NotFound, OutOfSpace, QuotaExceeded, Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.objects.base import ObjectWriter
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.settings import OutputSettings
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs, OutputCollection
from cloud_ml.usecases.jobs.outputs import Outputs
from support.outputs import Folders, write
from support.platform import Served


class Left:
    """A job that has ended, the folder that it worked in, and what becomes of its files."""

    def __init__(
        self,
        served: Served,
        root: Path,
        *,
        patterns: list[str] | None = None,
        quota: int | None = None,
    ) -> None:
        platform = served.platform
        self.objects, self.storage = platform.objects, platform.storage
        if quota is not None:
            self.storage._quota_of = lambda _: QuotaSpec(storage_bytes=quota)
        self.folders = Folders(root)
        self.outputs = Outputs(platform.store, self.storage, self.objects)
        self.clock = platform.clock
        job = TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz", outputs=patterns)
        self.job: TrainJobRecord = platform.jobs.submit(
            served.admin.identity, job, Capacity(4000, 2**33)
        )
        self.folder = self.folders.of(self.job.key.uid)

    def collect(
        self, stop: Callable[[], bool] = lambda: False, **settings: object
    ) -> CollectedOutputs:
        output_settings = replace(OutputSettings(), **settings)  # type: ignore[arg-type]
        collection = OutputCollection(
            self.outputs, self.storage, self.objects, self.clock, output_settings
        )
        with self.folders.working_directory(self.job.key.uid, 1) as directory:
            assert directory is not None
            return collection.collect(self.job, self.wrap(directory), stop=stop)

    def wrap(self, directory: WorkingDirectory) -> WorkingDirectory:
        return directory

    def stored(self) -> dict[str, bytes]:
        """What is in the bucket by its path below the job's folder."""
        prefix = f".outputs/linear-{self.job.key.uid}/"
        found = self.objects.list("cloudml", prefix).objects
        return {
            info.key.removeprefix(prefix): self.objects.get("cloudml", info.key) for info in found
        }


@pytest.fixture
def left(served: Served, tmp_path: Path) -> Left:
    return Left(served, tmp_path)


def reasons(collection: CollectedOutputs) -> list[str]:
    return [str(event.reason) for event in collection.events]


def test_new_files_are_stored_and_summed_up(left: Left) -> None:
    write(left.folder, model_dot_pt=100, plots__loss_dot_png=20, empty=0)
    collection = left.collect()
    assert left.stored() == {
        name: (left.folder / name).read_bytes() for name in ("model.pt", "plots/loss.png", "empty")
    }  # fmt: skip
    assert collection.outputs is not None
    assert collection.outputs.uri == f"fds://cloudml/.outputs/linear-{left.job.key.uid}"
    assert (collection.outputs.files, collection.outputs.bytes, collection.outputs.not_kept) == (
        3,
        120,
        0,
    )
    assert reasons(collection) == ["OutputsSaved"]


def test_a_job_that_left_nothing_has_none(left: Left) -> None:
    assert left.collect() == CollectedOutputs()


def test_what_is_no_output(left: Left) -> None:
    for folder in ("__pycache__", ".git", ".venv", "deep/.cache", "x.egg-info"):
        (left.folder / folder).mkdir(parents=True)
        (left.folder / folder / "file").touch()
    (left.folder / ".cloudmlignore").write_text("*.tmp\n/raw/\n")
    write(left.folder, raw__big=10, a_dot_tmp=10, model_dot_pt=1)
    left.collect()
    assert list(left.stored()) == ["model.pt"]


def test_an_ignore_file_that_cannot_be_read_ignores_nothing(left: Left) -> None:
    (left.folder / ".cloudmlignore").write_bytes(b"!\xff\n[z-a]\n")
    write(left.folder, model_dot_pt=1)
    left.collect()
    assert list(left.stored()) == ["model.pt"]


def test_patterns_of_the_user(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, patterns=["*.pt"])
    write(left.folder, model_dot_pt=1, log_dot_txt=1, deep__b_dot_pt=1)
    (left.folder / "bad\n.txt").touch()
    collection = left.collect()
    assert list(left.stored()) == ["deep/b.pt", "model.pt"]
    assert reasons(collection) == ["OutputsSaved"]  # what was not asked for is not missing


def test_no_outputs_were_wanted(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, patterns=[])
    write(left.folder, model_dot_pt=1)
    assert left.collect() == CollectedOutputs()
    assert left.stored() == {}


def test_what_is_beyond_the_bound_is_named_largest_first(left: Left) -> None:
    write(left.folder, small=10, big=3000, bigger=4000)
    collection = left.collect(max_bytes="2K")
    assert list(left.stored()) == ["small"]
    assert collection.outputs is not None
    assert collection.outputs.not_kept == 2
    assert reasons(collection) == ["OutputsSaved", "OutputsNotSaved"]
    assert collection.events[1].message == (
        "2 files not saved as outputs, over the limit of 2K and 100000 files for each job "
        "(outputs.max_bytes, outputs.max_files): bigger (3.91K), big (2.93K)"
    )


def test_a_terabyte_of_nothing_is_not_read(left: Left) -> None:
    with (left.folder / "sparse").open("wb") as file:
        file.truncate(2**40)
    write(left.folder, small=1)
    assert "sparse (1024G)" in left.collect().events[1].message
    assert list(left.stored()) == ["small"]


def test_a_link_to_a_file_is_saved_as_a_copy_and_other_links_are_named(left: Left) -> None:
    write(left.folder, runs__epoch_dot_pt=5)
    for name, text in {
        "last.pt": "runs/epoch.pt",
        "out": "/etc/passwd",
        "newest": "runs",
        "lock": "host-7",
    }.items():
        (left.folder / name).symlink_to(text)
    collection = left.collect()
    assert sorted(left.stored()) == ["last.pt", "runs/epoch.pt"]
    assert left.stored()["last.pt"] == (left.folder / "runs" / "epoch.pt").read_bytes()
    assert collection.outputs is not None
    assert (collection.outputs.files, collection.outputs.not_kept) == (2, 1)
    assert [(event.type.value, event.message) for event in collection.events[1:]] == [
        (
            "Warning",
            "1 link not saved as outputs, leading out of the working directory: out -> /etc/passwd",
        ),
        ("Normal", "1 link not saved as outputs, leading to no file: lock -> host-7"),
        (
            "Normal",
            "1 link not saved as outputs, leading to a folder, whose files are saved under its own "
            "name: newest -> runs",
        ),
    ]


def test_a_link_that_nobody_asked_for_is_not_missing(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, patterns=["*.pt"])
    (left.folder / "out").symlink_to("/etc/passwd")
    assert left.collect() == CollectedOutputs()


def test_a_folder_too_deep_is_named_as_what_it_is(left: Left) -> None:
    write(left.folder, small=1)
    (left.folder / "/".join("d" * 66)).mkdir(parents=True)
    message = left.collect().events[1].message
    assert message.startswith("1 folder not saved as outputs, inside of too many other folders: ")
    assert message.endswith("/d/d")


def test_patterns_that_take_too_long_to_compare(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, patterns=["*a*b*c*d*", "*.pt"])
    write(left.folder, a_dot_pt=1, b_dot_pt=1, folder__c_dot_pt=1)
    collection = left.collect(matching_s=1e-9)
    assert len(left.stored()) == 1
    assert collection.outputs is not None
    assert collection.outputs.not_kept == 2
    assert (
        "2 files not saved as outputs, comparing names with the patterns took longer than 1e-09 s"
        in (collection.events[1].message)
    )
    assert "outputs.matching_s" in collection.events[1].message


@pytest.mark.parametrize("count", [3, 40])
def test_a_server_that_stops_waits_for_no_pattern(left: Left, count: int) -> None:
    for number in range(count):
        write(left.folder, **{f"f{number}": 1})
    answers = iter([False, False])
    with pytest.raises(Unavailable):
        left.collect(stop=lambda: next(answers, True))
    assert left.stored() == {}


def test_names_that_cannot_be_keys_are_told(left: Left) -> None:
    with open(os.path.join(os.fsencode(left.folder), b"bad\xff\n"), "wb"):  # noqa: PTH118, PTH123
        pass
    collection = left.collect()
    assert left.stored() == {}
    assert collection.outputs is not None
    assert collection.outputs.not_kept == 1
    assert (
        collection.events[0].message
        == r"1 file not saved as outputs, names that cannot be keys of objects: bad\xff\n (0B)"
    )


def test_the_quota_has_room_for_some(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, quota=1000)
    write(left.folder, a=100, b=200, c=600, d=5000)
    collection = left.collect()
    assert list(left.stored()) == ["a", "b", "c"]
    assert (
        collection.events[-1].message
        == "1 file not saved as outputs, storage quota exceeded: d (4.88K)"
    )
    assert left.storage.room("default") == 100  # what was stored counts once


def test_outputs_count_to_the_quota_of_others(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, quota=1000)
    left.objects.put("cloudml", "there", bytes(950))
    write(left.folder, a=100)
    assert reasons(left.collect()) == ["OutputsNotSaved"]


def test_as_many_objects_as_there_may_be(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(org: str, more: int = 1) -> None:
        raise QuotaExceeded("too many")

    write(left.folder, a=100)
    monkeypatch.setattr(left.storage, "check_objects", refuse)
    message = left.collect().events[-1].message
    assert (
        message
        == "1 file not saved as outputs, as many objects as the organisation may have: a (100B)"
    )


def test_a_disk_that_fills_up_while_a_large_file_is_copied(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reserve of the disk is looked at with each piece, and a file that would use it up
    leaves no half.
    """
    looks = iter(range(1000))

    def check() -> None:
        if next(looks) > 3:
            raise OutOfSpace("nearly full")

    monkeypatch.setattr(left.storage, "_check_disk", check)
    write(left.folder, big=2_000_000)
    assert (
        left.collect().events[-1].message == "1 file not saved as outputs, disk full: big (1.91M)"
    )
    assert left.stored() == {}


class FullDisk:
    """Objects that have room for so many bytes."""

    def __init__(self, left: Left, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._room, self._commit = room, left.objects.commit_all
        monkeypatch.setattr(left.objects, "commit_all", self.commit_all)

    def commit_all(
        self, writers: Sequence[ObjectWriter], durable: bool = True
    ) -> Sequence[ObjectInfo | CloudMlError]:
        found: list[ObjectInfo | CloudMlError] = []
        for writer in writers:
            info = self._commit([writer])[0]
            assert isinstance(info, ObjectInfo)
            self._room -= info.size
            found.append(info if self._room >= 0 else OutOfSpace("full"))
        return found


def test_a_full_disk_is_told_and_the_rest_is_there(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    FullDisk(left, 150, monkeypatch)
    write(left.folder, a=100, b=200)
    collection = left.collect()
    assert collection.outputs is not None
    assert (collection.outputs.files, collection.outputs.not_kept) == (1, 1)
    assert collection.events[-1].message == "1 file not saved as outputs, disk full: b (200B)"


def test_a_full_disk_while_a_file_is_written(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> ObjectWriter:
        raise OutOfSpace("full")

    write(left.folder, a=100, b=200)
    monkeypatch.setattr(left.objects, "writer", refuse)
    collection = left.collect()
    assert (
        collection.events[0].message
        == "2 files not saved as outputs, disk full: b (200B), a (100B)"
    )


def test_a_file_that_the_disk_cannot_read_keeps_out_no_other(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = job_files.LocalWorkingDirectory.read

    def broken(directory: job_files.LocalWorkingDirectory, file: JobFile) -> Iterator[bytes]:
        if file.path == b"bad":
            raise OSError(5, "Input/output error")
        return read(directory, file)

    monkeypatch.setattr(job_files.LocalWorkingDirectory, "read", broken)
    write(left.folder, bad=1, good=2)
    assert (
        left.collect().events[-1].message
        == "1 file not saved as outputs, they cannot be read or written: bad (1B)"
    )
    assert list(left.stored()) == ["good"]


def test_of_a_file_that_cannot_be_read_to_its_end_nothing_is_stored(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else took its place, it was cut, or the server may not open it: an empty file is
    no output.
    """
    read = job_files.LocalWorkingDirectory.read

    def late(directory: job_files.LocalWorkingDirectory, file: JobFile) -> Iterator[bytes]:
        if file.path == b"swapped":
            (left.folder / "swapped").unlink()
            (left.folder / "swapped").symlink_to("/etc/passwd")
        elif file.path == b"cut":
            os.truncate(left.folder / "cut", 1)
        return read(directory, file)

    monkeypatch.setattr(job_files.LocalWorkingDirectory, "read", late)
    write(left.folder, swapped=300, cut=200, good=2, empty=0)
    collection = left.collect()
    assert left.stored().keys() == {"good", "empty"}
    assert collection.outputs is not None
    assert (collection.outputs.files, collection.outputs.not_kept) == (2, 2)
    assert collection.events[-1].message == (
        "2 files not saved as outputs, they cannot be read or written: swapped (300B), cut (200B)"
    )


def test_something_else_in_the_place_of_a_file(left: Left) -> None:
    prefix = f".outputs/linear-{left.job.key.uid}"
    left.objects.put("cloudml", f"{prefix}/model/1", b"a job made a folder there")
    write(left.folder, model=10, other=10)
    collection = left.collect()
    assert "other" in left.stored()
    assert "something else has their place in the bucket: model" in collection.events[-1].message


def test_an_organisation_without_a_default_bucket(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path)
    store = served.platform.store
    record = store.find(ORGANISATION, SYSTEM, "default")
    assert record is not None
    store.change_spec(
        ORGANISATION,
        record.key.uid,
        lambda spec: replace(spec, default_bucket=""),
        now=left.clock(),
    )
    write(left.folder, model=10)
    collection = left.collect()
    assert collection.outputs is None
    assert "the organisation has no default bucket" in collection.events[0].message


def test_a_bucket_that_goes_meanwhile(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(org: str, bucket: str) -> None:
        raise NotFound("gone")

    write(left.folder, model=10)
    monkeypatch.setattr(left.storage, "check_own", gone)
    assert reasons(left.collect()) == ["OutputsNotSaved"]


def test_many_small_files_are_flushed_to_the_disk_once(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (left.folder / f"{number:03}").write_text(str(number))
    flushed: list[int] = []
    monkeypatch.setattr(left.objects, "sync", lambda: flushed.append(len(left.stored())))
    collection = left.collect()
    assert flushed == [300]  # after the last, and before anybody is told
    assert left.collect() == collection
    assert flushed == [300, 300]  # what a killed server has stored may not be on the disk
    assert collection.outputs is not None
    assert collection.outputs.files == len(left.stored()) == 300


def test_a_bound_on_the_number_of_files(left: Left) -> None:
    write(left.folder, a=1, b=2, c=3)
    left.collect(max_files=2)
    assert list(left.stored()) == ["a", "b"]


# ---- interrupted


def test_a_collection_that_is_stopped_goes_on_where_it_was(served: Served, tmp_path: Path) -> None:
    left = Left(served, tmp_path, quota=1500)
    for number in range(130):
        (left.folder / f"{number:03}").write_bytes(bytes(10))
    with pytest.raises(Unavailable):
        left.collect(stop=lambda: bool(left.stored()))
    before = left.stored()
    assert 0 < len(before) < 130
    served.platform.storage._counted._entries.clear()
    collection = left.collect()
    assert collection.outputs is not None
    assert collection.outputs.files == len(left.stored()) == 130  # the quota has room for each once
    assert reasons(collection) == ["OutputsSaved"]


def test_what_a_job_has_put_beside_its_outputs_is_not_read(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may write millions of files into its bucket: a list of them was held in memory."""
    write(left.folder, a=10)
    left.collect()
    for number in range(50):
        left.objects.put("cloudml", f".outputs/linear-{left.job.key.uid}/junk/{number}", b"")
    read: list[str] = []
    head, listed = left.objects.head, left.objects.list
    monkeypatch.setattr(
        left.objects, "head", lambda bucket, key: read.append(key) or head(bucket, key)
    )

    def list_objects(*arguments: object, **options: object) -> object:
        page = listed(*arguments, **options)  # type: ignore[arg-type]
        read.extend(info.key for info in page.objects)
        return page

    monkeypatch.setattr(left.objects, "list", list_objects)
    collection = left.collect()
    assert collection.outputs is not None
    assert collection.outputs.files == 1
    assert [key.rpartition("/")[2] for key in read] == ["a"]


def test_repeated_it_stores_nothing_twice(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    write(left.folder, a=10, b=20)
    first = left.collect()
    monkeypatch.setattr(left.objects, "writer", lambda *_, **__: pytest.fail("it is there"))
    assert left.collect() == first


def test_a_file_that_changed_since_is_stored_again(left: Left) -> None:
    write(left.folder, a=10)
    left.collect()
    (left.folder / "a").write_bytes(b"another one")
    left.collect()
    assert left.stored() == {"a": b"another one"}


@pytest.mark.parametrize("chunks", [2, 3])
def test_given_up_in_the_middle_of_a_file_leaves_no_half(left: Left, chunks: int) -> None:
    write(left.folder, big=2_000_000)
    looks = iter(range(1000))
    with pytest.raises(Unavailable):
        left.collect(stop=lambda: next(looks) >= chunks)
    assert left.stored() == {}


# ---- read and removed


def ended(left: Left) -> TrainJobRecord:
    return replace(left.job, status=replace(left.job.status, outputs=left.collect().outputs))


def test_pages_of_outputs(left: Left) -> None:
    write(left.folder, a=1, b__c=2, d_dot_onnx=3)
    job = ended(left)
    first = left.outputs.page(job, limit=2)
    assert [file.path for file in first.items] == ["a", "b/c"]
    assert first.next is not None
    second = left.outputs.page(job, after=first.next, limit=2)
    assert [(file.path, file.size, file.model) for file in second.items] == [
        ("d.onnx", 3, "d.onnx")
    ]
    assert second.next is None
    assert second.items[0].uri == f"{first.uri}/d.onnx"


def test_texts_are_proposed_as_models_by_what_they_hold(left: Left) -> None:
    texts = {
        "churn.json": '{"learner":{}}',
        "churn.txt": "tree\nversion=v4",
        "model.json": '{"class_name": "Sequential"}',
        "notes.txt": "trees",
        "empty.json": "",
    }
    for name, text in texts.items():
        (left.folder / name).write_text(text)
    proposed = [file.model for file in left.outputs.page(ended(left)).items if file.model]
    assert proposed == ["churn.json", "churn.txt"]


def test_a_job_without_outputs_has_an_empty_page_and_no_files(left: Left) -> None:
    assert left.outputs.page(left.job).items == []
    with pytest.raises(NotFound, match="no output x"):
        left.outputs.uri_of(left.job, "x")


def test_outputs_go_with_their_job_and_nothing_else_does(left: Left) -> None:
    left.objects.put("cloudml", f".outputs/linear-{left.job.key.uid}0/x", b"another job's")
    write(left.folder, a=1, b__c=2)
    job = ended(left)
    for _ in range(2):
        left.outputs.delete(job, stop=lambda: False)
        assert left.stored() == {}
    assert left.objects.list("cloudml", ".outputs/").objects != []


def test_what_a_killed_server_had_stored_goes_too(left: Left) -> None:
    write(left.folder, a=1)
    left.collect()
    left.outputs.delete(left.job, stop=lambda: False)  # whose status says nothing of outputs
    assert left.stored() == {}


def test_a_removal_can_be_interrupted(left: Left) -> None:
    write(left.folder, a=1)
    job = ended(left)
    with pytest.raises(Unavailable):
        left.outputs.delete(job, stop=lambda: True)
    assert left.stored() != {}

"""The checkpoints that jobs have saved: found, and listed. Blocking."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from cloud_ml import failpoints
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads import checkpoints as rules
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.errors import Conflict, InvalidRequest, NotFound, Unavailable
from cloud_ml.models.common import split_uri
from cloud_ml.models.jobs.checkpoints import JobCheckpoint, JobCheckpoints, NewestCheckpoint
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.storage.objects import Storage

_MOST_FILES = 1000
_LISTED = 100
_MOST_SHARDS = 64
_LOOK_S = 2.0
"""So long folders are looked into for one answer."""
_NOTES_OF_TASK = 20
"""So many of the newest notes of each task of an array are looked at."""
_LOOKED_FOR = 300
"""So many of the newest notes are believed to be worth a look into the bucket."""


class Checkpoints:
    """Reads what jobs noted in their buckets. Notes are text of the job's own: nothing of them is
    believed that is not there.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        objects: ObjectStore,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._storage = storage
        self._objects = objects
        self._monotonic = monotonic

    def bucket(self, job: TrainJobRecord) -> str:
        """The bucket of a job's checkpoints: that of the folder that it has chosen, its own, or the
        default one of its organisation; empty if there is none.
        """
        org, own = job.key.org, job.spec.workload.bucket
        if chosen := job.spec.workload.checkpoint_folder:
            bucket, _ = split_uri(chosen)
            return bucket if self._storage.owns(org, bucket) else ""
        if own is not None and self._storage.owns(org, own):
            return own
        record = self._store.find(ORGANISATION, SYSTEM, org)
        default = "" if record is None else record.spec.default_bucket
        return default if default and self._storage.owns(org, default) else ""

    @staticmethod
    def folder(job: TrainJobRecord) -> str:
        """The folder of a job's checkpoints in that bucket."""
        chosen = job.spec.workload.checkpoint_folder
        return split_uri(chosen)[1] if chosen else rules.folder_of(job.key.name, job.key.uid)

    def newest(self, job: TrainJobRecord) -> str:
        """The path of the newest complete checkpoint, relative to the job's folder; or empty."""
        newest = self._newest_of(job)
        return "" if newest is None else newest.path

    def newest_noted(self, job: TrainJobRecord) -> NotedCheckpoint | None:
        """The newest complete checkpoint; ``None`` without one."""
        return self._newest_of(job)

    def describe_newest(self, job: TrainJobRecord) -> NewestCheckpoint | None:
        """The newest complete checkpoint, as the job's description names it; ``None`` without one.

        The tasks of an array have folders of their own, and what a study drops is not told.
        """
        workload = job.spec.workload
        if workload.is_array or workload.drops_checkpoints:
            return None
        newest = self._newest_of(job)
        if newest is None:
            return None
        return NewestCheckpoint(
            path=newest.path,
            uri=f"fds://{self.bucket(job)}/{self.folder(job)}/{newest.path}",
            step=newest.step,
            saved_at=newest.at,
            attempt=newest.attempt,
        )

    def at(self, org: str, uri: str) -> str:
        """The checkpoint that a URI names: of a folder with notes, the newest complete one.

        Empty if there is none. A URI in a bucket that is not the organisation's is returned as it
        is: others say what is wrong with it.
        """
        bucket, key = split_uri(uri)
        key = key.rstrip("/")
        if not self._storage.owns(org, bucket):
            return uri
        if not key:
            return ""
        if newest := self._newest(bucket, key):
            return f"fds://{bucket}/{key}/{newest.path}"
        there = self._is_there(bucket, key, self._monotonic() + _LOOK_S)
        return f"fds://{bucket}/{key}" if there else ""

    def step_at(self, org: str, uri: str) -> int | None:
        """The step of the checkpoint at a URI, as its job has noted it or as its name says it;
        ``None`` if neither does.
        """
        bucket, key = split_uri(uri)
        if not self._storage.owns(org, bucket):
            return None
        folder, path = rules.split_folder(key)
        noted = (one.step for one in self._read_noted(bucket, folder) if one.path == path)
        return next(noted, rules.step_of(path))

    def superseded(self, job: TrainJobRecord) -> list[NotedCheckpoint]:
        """The checkpoints that a job has reported and need not keep: those behind the newest that
        are there, the oldest first. Without those that somebody refers to, or that hold a newer
        one.
        """
        workload, late = job.spec.workload, self._monotonic() + _LOOK_S
        bucket, folder = self.bucket(job), self.folder(job)
        kept = [*workload.referred_checkpoints]
        reported = {one.path for one in self._read_reported(bucket, folder)}
        reported -= {rules.SAVED, rules.RENAMED, rules.TENSORFLOW}
        newest: set[str] = set()
        found: list[NotedCheckpoint] = []
        for noted in self._read_noted(bucket, folder):
            if noted.path in newest:
                continue
            if not self._is_there(bucket, f"{folder}/{noted.path}", late):
                kept.append(noted.path)  # it went, or nobody had the time to look
                continue
            newest.add(noted.path)
            if len(newest) <= (workload.keep_checkpoints or _LISTED):
                kept.append(noted.path)
            elif noted.path in reported and not rules.is_referred(noted.path, kept):
                found.append(noted)
        return found[::-1]

    def remove(
        self, job: TrainJobRecord, doomed: Sequence[NotedCheckpoint], stop: Callable[[], bool]
    ) -> None:
        """Remove checkpoints of a job. One that it has saved again since is left, as a whole or in
        part.

        Each is there as a whole, or not at all: a folder loses its name in one step, and of
        TensorFlow's files the index goes first. Ends early when ``stop`` says so.
        """
        bucket, folder = self.bucket(job), self.folder(job)
        for one in doomed:
            if stop():
                return
            since = [same.path for same in self._read_reported(bucket, folder) if same.at > one.at]
            if rules.is_referred(one.path, since):
                continue
            failpoints.here("checkpoints.remove.before")
            with contextlib.suppress(NotFound, InvalidRequest, Conflict):
                self._remove(bucket, f"{folder}/{one.path}")
            failpoints.here("checkpoints.remove.after")

    def remove_rest(self, job: TrainJobRecord, gone: Sequence[NotedCheckpoint]) -> None:
        """Remove data files of TensorFlow that were left when a server was killed after it had
        removed their index.
        """
        bucket, folder = self.bucket(job), self.folder(job)
        for one in gone:
            with contextlib.suppress(NotFound, InvalidRequest, Conflict):
                if self._objects.head(bucket, f"{folder}/{one.path}.index") is None:
                    for shard in self._shards(bucket, f"{folder}/{one.path}"):
                        self._objects.delete(bucket, shard.key)

    def remove_all(self, job: TrainJobRecord) -> None:
        """Remove the folder of a job's checkpoints. It is there as a whole, or not at all. One that
        others may use stays.
        """
        if job.spec.workload.checkpoint_folder:
            return
        if bucket := self.bucket(job):
            failpoints.here("study.checkpoints.before")
            with contextlib.suppress(NotFound, InvalidRequest, Conflict):
                self._objects.delete_folder(bucket, self.folder(job))
            failpoints.here("study.checkpoints.after")

    def _remove(self, bucket: str, key: str) -> None:
        if self._objects.head(bucket, key) is not None:
            self._objects.delete(bucket, key)
        elif self._objects.head(bucket, f"{key}.index") is not None:
            shards = self._shards(bucket, key)
            # Remove the index first: readers look for it, so the checkpoint disappears as a
            # whole.
            self._objects.delete(bucket, f"{key}.index")
            for shard in shards:
                self._objects.delete(bucket, shard.key)
        else:
            self._objects.delete_folder(bucket, key)

    def _read_reported(self, bucket: str, folder: str) -> list[NotedCheckpoint]:
        return (
            rules.parse_saved(self._end_of(bucket, f"{folder}/{rules.SAVED}")[1]) if bucket else []
        )

    def _newest_of(self, job: TrainJobRecord) -> NotedCheckpoint | None:
        folder = self.folder(job)
        return self._newest(self.bucket(job), folder, job.status.dropped_checkpoints)

    def _newest(
        self, bucket: str, folder: str, dropped: Sequence[NotedCheckpoint] = ()
    ) -> NotedCheckpoint | None:
        late = self._monotonic() + _LOOK_S
        noted = rules.without(self._read_noted(bucket, folder), dropped)
        found = (one for one in noted if self._is_there(bucket, f"{folder}/{one.path}", late))
        return next(found, None)

    def of(self, job: TrainJobRecord) -> JobCheckpoints:
        """The last hundred checkpoints of a job that are still there, the oldest first. The tasks
        of an array have folders of their own, whose names begin the paths.

        Fewer where it takes long to look at them.
        """
        if job.spec.workload.drops_checkpoints:
            return JobCheckpoints(uri="", items=[])
        late = self._monotonic() + _LOOK_S
        bucket, folder = self.bucket(job), self.folder(job)
        noted_ones: Iterable[NotedCheckpoint] = self._read_noted(bucket, folder)
        if job.spec.workload.is_array:
            noted_ones = self._noted_by_tasks(bucket, folder, job.spec.workload.tasks, late)
        items: dict[str, JobCheckpoint] = {}
        for noted in rules.without(noted_ones, job.status.dropped_checkpoints):
            if len(items) == _LISTED or noted.path in items:
                continue
            if files := self._files(bucket, f"{folder}/{noted.path}", late):
                items[noted.path] = JobCheckpoint(
                    path=noted.path,
                    uri=f"fds://{bucket}/{folder}/{noted.path}",
                    step=noted.step,
                    saved_at=noted.at,
                    size=sum(file.size for file in files),
                    attempt=noted.attempt,
                )
        uri = f"fds://{bucket}/{folder}" if items else ""
        return JobCheckpoints(uri=uri, items=[*items.values()][::-1])

    def _read_noted(self, bucket: str, folder: str) -> Iterator[NotedCheckpoint]:
        """What was noted in a folder, the newest first."""
        if not bucket:
            return
        _, saved = self._end_of(bucket, f"{folder}/{rules.SAVED}")
        info, note = self._end_of(bucket, f"{folder}/{rules.TENSORFLOW}")
        by_tensorflow = None if info is None else rules.by_tensorflow(note, info.modified)
        _, renamed = self._end_of(bucket, f"{folder}/{rules.RENAMED}")
        yield from rules.believed(saved, by_tensorflow, renamed)[:_LOOKED_FOR]

    def _noted_by_tasks(
        self, bucket: str, folder: str, tasks: Sequence[str], late: float
    ) -> Iterator[NotedCheckpoint]:
        """What the tasks of an array have noted in their folders, the newest of all first. After
        ``late`` no further folder is looked at.
        """
        found: list[NotedCheckpoint] = []
        for task in tasks:
            if self._monotonic() >= late:
                break
            own = itertools.islice(self._read_noted(bucket, f"{folder}/{task}"), _NOTES_OF_TASK)
            found += [replace(one, path=f"{task}/{one.path}") for one in own]
        found.sort(key=lambda noted: noted.at, reverse=True)
        yield from found

    def _end_of(self, bucket: str, key: str) -> tuple[ObjectInfo | None, bytes]:
        try:
            if (info := self._objects.head(bucket, key)) is None:
                return None, b""
            start = max(0, info.size - rules.READ_BYTES)
            _, chunks = self._objects.read(bucket, key, start=start, length=rules.READ_BYTES)
            return info, b"".join(chunks)
        except (NotFound, Unavailable, InvalidRequest, Conflict):
            return None, b""  # it went, changes just now, or the job has closed its folder

    def _is_there(self, bucket: str, key: str, late: float) -> bool:
        return bool(self._files(bucket, key, late, most=1))

    def _files(
        self, bucket: str, key: str, late: float, most: int = _MOST_FILES
    ) -> list[ObjectInfo]:
        """The files of a checkpoint: one, those of a folder, or TensorFlow's, whose names begin so.

        After ``late`` no folder is looked into: a job may have filled one to keep us busy. There are
        none in a folder that the job has closed.
        """
        with contextlib.suppress(NotFound, InvalidRequest, Conflict):
            if (info := self._objects.head(bucket, key)) is not None:
                return [info]
            if (index := self._objects.head(bucket, f"{key}.index")) is not None:
                return [index, *self._shards(bucket, key)][:most]
            if self._monotonic() < late:
                return list(self._objects.list(bucket, f"{key}/", limit=most).objects)
        return []

    def _shards(self, bucket: str, key: str) -> list[ObjectInfo]:
        """The data files beside the index of a checkpoint of TensorFlow."""
        for count in range(1, _MOST_SHARDS + 1):
            names = [f"{key}.data-{number:05}-of-{count:05}" for number in range(count)]
            if (first := self._objects.head(bucket, names[0])) is not None:
                others = (self._objects.head(bucket, name) for name in names[1:])
                return [first, *(one for one in others if one is not None)]
        return []

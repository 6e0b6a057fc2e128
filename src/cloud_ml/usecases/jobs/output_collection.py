"""Stores the outputs of a job when it ends. Blocking.

The collection is idempotent. Each file appears under its key as a whole, and a file that is there
with its full size since it was last changed is not stored again. So a server that dies in between
costs time and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cloud_ml import failpoints
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.workloads import outputs as rules
from cloud_ml.domain.workloads.outputs import (
    JobFile,
    OmittedFiles,
    OutputLimits,
    OutputSelection,
    StoredOutputs,
)
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import WorkingDirectory
from cloud_ml.errors import (
    CloudMlError,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    QuotaExceeded,
    TryAgain,
)
from cloud_ml.models import common
from cloud_ml.models.paths.ignoring import IGNORE_FILE
from cloud_ml.objects.base import ObjectStore, ObjectWriter, check_object_key
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.settings import OutputSettings
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.omitted_outputs import OmittedOutputs, count
from cloud_ml.usecases.jobs.outputs import Outputs, interruption
from cloud_ml.usecases.jobs.paced_filter import PacedFilter
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.pending_uploads import Share

_GROUP_FILES, _GROUP_BYTES = 64, 16 * 2**20
"""Files that are placed together, which is quick; each holds two descriptors meanwhile."""
_FEW_FILES = 128
"""So many are flushed to the disk one by one. With more, the disk is flushed once in the end."""
_IGNORE_BYTES, _IGNORE_LINES, _IGNORE_LINE = 1 << 16, 200, 256


@dataclass
class CollectedOutputs:
    """The result: what the job's status says of its outputs, and the events that go with it."""

    outputs: StoredOutputs | None = None
    events: list[Event] = field(default_factory=list)


class OutputCollection:
    """Stores what jobs leave."""

    def __init__(
        self,
        outputs: Outputs,
        storage: Storage,
        objects: ObjectStore,
        clock: Clock,
        settings: OutputSettings,
    ) -> None:
        self._outputs = outputs
        self._storage = storage
        self._objects = objects
        self._clock = clock
        self._settings = settings
        size = common.memory_bytes(settings.max_bytes) if settings.max_bytes else None
        self._bounds = OutputLimits(size, settings.max_files or None)

    def collect(
        self, job: TrainJobRecord, directory: WorkingDirectory, *, stop: Callable[[], bool]
    ) -> CollectedOutputs:
        """Store the outputs of a job that has ended. A file that is not stored is named in an
        event.

        Args:
            job: Its record, before its end is committed.
            directory: Its working directory.
            stop: Asked now and then whether to give up.

        Raises:
            Unavailable: ``stop`` said so.
            TryAgain: The store does not answer at present.
        """
        omitted = OmittedOutputs()
        selection = self._select(job, directory, omitted, stop)
        files = list(selection.files())
        omitted.beyond = selection.beyond
        if not files and not omitted.anything:
            return CollectedOutputs()
        bucket = self._outputs.bucket(job.key.org)
        if not bucket:
            omitted.add_all(omitted.no_bucket, files)
            return CollectedOutputs(events=self._events(omitted))
        prefix = rules.folder_of(job.key.name, job.key.uid)
        few = len(files) <= _FEW_FILES
        batch = _Batch(job.key.org, bucket, prefix, directory, omitted, stop, durable=few)
        stored = self._store(batch, files)
        if not few:
            self._objects.sync()
        failpoints.here("outputs.collect.after")
        summary = StoredOutputs(
            uri=f"fds://{bucket}/{prefix.rstrip('/')}",
            files=len(stored),
            bytes=sum(file.size for file in stored),
            not_kept=omitted.count,
        )
        return CollectedOutputs(summary, self._events(omitted, summary if stored else None))

    # ---- what is kept

    def _select(
        self,
        job: TrainJobRecord,
        directory: WorkingDirectory,
        omitted: OmittedOutputs,
        stop: Callable[[], bool],
    ) -> OutputSelection:
        selection = OutputSelection(self._bounds)
        output_filter = self._filter(job, directory)
        if output_filter is None:
            return selection
        prefix = rules.folder_of(job.key.name, job.key.uid)

        def enters(folder: bytes) -> bool:
            if stop():
                raise interruption()
            return _may_hold_outputs(folder) and output_filter.enters(folder)

        for file in directory.files(enters):
            if stop():
                raise interruption()
            keeps = _keeps_file(file, output_filter)
            if keeps is None:
                omitted.unmatched.add(file)
            elif not keeps:
                continue
            elif file.obstacle is not None:
                omitted.obstacles[file.obstacle].add(file)
            elif not _can_be_key(prefix, file.path):
                omitted.unnameable.add(file)
            else:
                selection.add(file)
        return selection

    def _filter(self, job: TrainJobRecord, directory: WorkingDirectory) -> PacedFilter | None:
        """Which files are outputs; ``None`` for none at all."""
        limit_s = self._settings.matching_s
        patterns = job.spec.submitted.outputs
        if patterns is not None:
            return PacedFilter(patterns, limit_s=limit_s) if patterns else None
        try:
            return PacedFilter(None, _ignore_lines(directory), limit_s=limit_s)
        except InvalidRequest:  # an ignore file that cannot be read ignores nothing
            return PacedFilter(None, limit_s=limit_s)

    # ---- storing

    def _store(self, batch: _Batch, files: Sequence[JobFile]) -> Sequence[JobFile]:
        """Store what is not there yet, the smallest first; returns what is there in the end."""
        there = self._stored_before(batch, files)
        stored = [file for file in files if _is_stored(file, there)]
        missing = [file for file in files if not _is_stored(file, there)]
        groups = _groups(missing)
        for group in groups:
            try:
                placed, reason = self._place(batch, group)
            except NotFound:  # the bucket went meanwhile
                placed, reason = [], batch.omitted.no_bucket
            stored += placed
            if reason is not None:  # those that follow are larger
                there_now = {file.path for file in placed}
                batch.omitted.add_all(
                    reason, [file for file in group if file.path not in there_now]
                )
                for rest in groups:
                    batch.omitted.add_all(reason, rest)
        return stored

    def _stored_before(self, batch: _Batch, files: Sequence[JobFile]) -> Mapping[bytes, ObjectInfo]:
        """Those of the files that a collection has stored whose server died, as they are now.

        The folder is not listed: the job may have put millions of objects there.
        """
        found: dict[bytes, ObjectInfo] = {}
        with contextlib.suppress(NotFound):
            for file in files:
                if batch.stop():
                    raise interruption()
                info = self._objects.head(batch.bucket, batch.prefix + file.path.decode())
                if info is not None:
                    found[file.path] = info
        return found

    def _place(
        self, batch: _Batch, group: Sequence[JobFile]
    ) -> tuple[list[JobFile], OmittedFiles | None]:
        """Store a few files together; returns those that are there now, and why others are not."""
        self._storage.check_own(batch.org, batch.bucket)
        try:
            self._storage.check_objects(batch.org, len(group))
        except QuotaExceeded:
            return [], batch.omitted.objects
        share = self._storage.share(batch.org)
        writers: list[tuple[JobFile, ObjectWriter]] = []
        reason: OmittedFiles | None = None
        try:
            for file in group:
                try:
                    share.take(file.size)
                    writer = self._copy(batch, file, share)
                except QuotaExceeded:
                    reason = batch.omitted.quota
                    break
                except OutOfSpace:
                    reason = batch.omitted.disk
                    break
                if writer is not None:
                    writers.append((file, writer))
            found = self._objects.commit_all(
                [writer for _, writer in writers], durable=batch.durable
            )
            share.keep()
        except OutOfSpace:
            return [], batch.omitted.disk
        finally:
            share.drop()
            for _, writer in writers:
                writer.abort()
        failpoints.here("outputs.place.after")
        return self._note_placed(batch, writers, found), reason

    def _copy(self, batch: _Batch, file: JobFile, share: Share) -> ObjectWriter | None:
        """An upload that holds the file's bytes; ``None`` if something else is in its place."""
        try:
            writer = self._objects.writer(batch.bucket, batch.prefix + file.path.decode())
        except (TryAgain, NotFound):
            raise
        except CloudMlError:  # a job has put a folder or a link there
            batch.omitted.obstructed.add(file)
            return None
        with contextlib.ExitStack() as unfinished:
            unfinished.callback(writer.abort)
            if not self._write(batch, file, share, writer):
                return None
            unfinished.pop_all()
        return writer

    @staticmethod
    def _write(batch: _Batch, file: JobFile, share: Share, writer: ObjectWriter) -> bool:
        """Copy a file's bytes; false if not all of them can be read."""
        missing = file.size
        try:
            for chunk in batch.directory.read(file):
                share.take(0)  # the disk may fill up meanwhile
                writer.write(chunk)
                missing -= len(chunk)
                if batch.stop():
                    raise interruption()
        except OSError:
            batch.omitted.failed.add(file)
            return False
        if missing:
            batch.omitted.failed.add(file)
        return not missing

    def _note_placed(
        self,
        batch: _Batch,
        writers: Sequence[tuple[JobFile, ObjectWriter]],
        found: Sequence[ObjectInfo | CloudMlError],
    ) -> list[JobFile]:
        placed = []
        for (file, _), one in zip(writers, found, strict=True):
            if isinstance(one, ObjectInfo):
                self._storage.note_added(one)
                placed.append(JobFile(file.path, one.size, file.modified_ns))
            elif isinstance(one, OutOfSpace):
                batch.omitted.disk.add(file)
            else:
                (
                    batch.omitted.failed if isinstance(one, TryAgain) else batch.omitted.obstructed
                ).add(file)
        return placed

    # ---- what is said

    def _events(self, omitted: OmittedOutputs, outputs: StoredOutputs | None = None) -> list[Event]:
        now, events = self._clock(), list[Event]()
        if outputs is not None:
            what = f"{count(outputs.files)} ({common.format_memory(outputs.bytes)})"
            events.append(
                Event(now, Reason.OUTPUTS_SAVED, f"saved {what} as outputs in {outputs.uri}")
            )
        for sentence, lost in omitted.sentences(self._settings):
            kind = EventType.WARNING if lost else EventType.NORMAL
            events.append(Event(now, Reason.OUTPUTS_NOT_SAVED, sentence, kind))
        return events


@dataclass(frozen=True)
class _Batch:
    """Where files are read and where they go."""

    org: str
    bucket: str
    prefix: str
    directory: WorkingDirectory
    omitted: OmittedOutputs
    stop: Callable[[], bool]
    durable: bool


def _ignore_lines(directory: WorkingDirectory) -> Sequence[str]:
    content = b"".join(directory.read(JobFile(IGNORE_FILE.encode(), _IGNORE_BYTES)))
    return [
        line[:_IGNORE_LINE]
        for line in content.decode("utf-8", "replace").splitlines()[:_IGNORE_LINES]
    ]


def _may_hold_outputs(folder: bytes) -> bool:
    name = folder.rpartition(b"/")[2]
    return name not in rules.SKIPPED_FOLDERS and not name.endswith(b".egg-info")


def _keeps_file(file: JobFile, output_filter: PacedFilter) -> bool | None:
    if file.obstacle is not None and file.obstacle.of_folder:
        return output_filter.may_keep_below(file.path)
    return output_filter.keeps(file.path)


def _can_be_key(prefix: str, path: bytes) -> bool:
    try:
        check_object_key(prefix + path.decode())
    except (UnicodeDecodeError, InvalidRequest):
        return False
    return True


def _is_stored(file: JobFile, there: Mapping[bytes, ObjectInfo]) -> bool:
    """Whether an earlier collection has stored the file as it is now."""
    info = there.get(file.path)
    return (
        info is not None
        and info.size == file.size
        and info.modified.timestamp() * 1e9 >= file.modified_ns
    )


def _groups(files: Sequence[JobFile]) -> Iterator[Sequence[JobFile]]:
    """Files that are stored together: a few, and not too many bytes."""
    group: list[JobFile] = []
    size = 0
    for file in files:
        if group and (len(group) == _GROUP_FILES or size + file.size > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group

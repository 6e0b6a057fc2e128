"""Collects points from event files and logs of jobs. Blocking.

A process without rights parses them: see ``parsing``. Where a file was read to is stored with its
points in one transaction, as with reports.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from cloud_ml import failpoints
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.metrics.reports import Value, is_metric_name
from cloud_ml.domain.metrics.runs import name_order, run_of
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG
from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.domain.quotas import QuotaOf
from cloud_ml.engines.abilities import BucketFolder, EventFile, EventFiles, MetricFiles
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import NotFound, StaleRevision
from cloud_ml.models.common import split_uri
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.metrics.events import MetricEvents
from cloud_ml.usecases.metrics.limits import RunLimits
from cloud_ml.usecases.metrics.parsing import EventSession, NoParser, PointParser, UnreadableFile

logger = logging.getLogger(__name__)
_PIECES = 8
"""Pieces of files that one call reads; others wait for their turn."""
_ATTEMPTS = 100
"""So many attempts before the current one are looked at."""
_SESSIONS = 16
"""Starts of a task that one event file may have."""
_WATCHED = 4
"""Folders of event files of a job that are watched. In others, files are read a while later."""
_HEAD_BYTES = 64
_MARGIN = timedelta(seconds=2)
"""Clocks of file systems are not exact."""


@dataclass(frozen=True)
class _FileState:
    """What is known of a file, beside how far it was read.

    ``base`` is the start of its first session: each file has starts of its own, behind those of all
    files that were seen before. ``stopped`` says why it is not read any more. ``head`` is made of
    its first bytes, which hold the time at which it was begun.
    """

    base: int = 0
    session: int = 0
    purge: int | None = None
    stopped: str = ""
    steps: Mapping[str, int] | None = None
    head: str = ""

    def text(self) -> str:
        """As it is stored."""
        return json.dumps({name: value for name, value in self.__dict__.items() if value})


def _read_head(descriptor: int, length: int) -> str:
    """Stands for the first bytes of a file, up to ``length`` of them."""
    data = os.pread(descriptor, min(length, _HEAD_BYTES), 0)
    return f"{len(data)}:{zlib.crc32(data):08x}"


def _state_of(position: FilePosition) -> _FileState:
    return _FileState(**json.loads(position.state)) if position.state else _FileState()


@dataclass
class _Known:
    """Where the event files of a job are: the folders that changed last, and the files in which
    something was new, one of each folder, the last behind the others. In front of them stand some
    in which nothing was new: those that were just made, or that another server has read.
    """

    recent: Sequence[str] = ()
    grown: dict[str, None] = field(default_factory=dict)

    def add_grown(self, paths: Sequence[str]) -> bool:
        """Note files in which something was new. Returns whether one was not known."""
        folders = {path.rpartition("/")[0]: path for path in self.grown}
        new = [path for path in paths if path.rpartition("/")[0] not in folders]
        for path in paths:
            self.grown.pop(folders.get(path.rpartition("/")[0], ""), None)
            self.grown[path] = None
        for path in list(self.grown)[:-_WATCHED]:
            del self.grown[path]
        return bool(new)

    def add_quiet(self, paths: Sequence[str]) -> bool:
        """Note files in which nothing was new, in the room that the others leave. Returns whether
        one was not known.
        """
        folders: dict[str, str] = {}
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], path)
        for path in self.grown:
            folders.pop(path.rpartition("/")[0], None)
        room = max(0, _WATCHED - len(self.grown))
        new = list(folders.values())[:room]
        self.grown = {**dict.fromkeys(new), **self.grown}  # the first one is the first to go
        return bool(new)


@dataclass
class _Pass:
    """One call for one job: what it reads, and how many pieces it still may."""

    engine: MetricFiles
    uid: str
    org: str
    folders: Sequence[BucketFolder] = ()
    pieces: int = _PIECES
    grown: list[str] = field(default_factory=list)
    quiet: list[tuple[int, str]] = field(default_factory=list)
    """Files in which nothing was new, behind how far they were read."""


class FileCollection:
    """Reads on in event files and logs.

    Args:
        engine: Lends the files.
        parser: Finds the points in them.
        store: Keeps the points.
        owns: Whether an organisation has a bucket.
        clock: Dates events.
        settings: What a job may have.
        quota_of: What an organisation may have.
    """

    def __init__(
        self,
        engine: Any,
        parser: PointParser,
        store: StateStore,
        *,
        owns: Callable[[str, str], bool],
        clock: Clock,
        settings: MetricSettings,
        quota_of: QuotaOf | None = None,
    ) -> None:
        self._engine: MetricFiles | None = engine if isinstance(engine, MetricFiles) else None
        self._parser = parser
        self._store = store
        self._owns = owns
        self._settings = settings
        self._limits = RunLimits(settings, quota_of)
        self._events = MetricEvents(store, clock)
        self._incomplete_jobs: set[str] = set()
        """Jobs with more event files than are read: the event is written once."""
        self._known: dict[str, _Known] = {}

    def watch(self, job: TrainJobRecord) -> None:
        """Have ``changes`` name a job when there may be something new in its files, once."""
        if self._engine is None or not job.spec.workload.tasks:
            return
        key = GangKey(job.key.uid, job.status.attempt)
        known = self._known.setdefault(key.job_uid, _Known())
        self._engine.watch_files(
            key.job_uid,
            list(self._folders(job)),
            recent=known.recent,
            grown=list(known.grown),
            log=key if job.spec.submitted.metric_patterns else None,
        )

    def changes(self) -> AsyncIterator[str] | None:
        """Uids of jobs that were watched and whose files have changed; ``None`` if nobody tells."""
        return None if self._engine is None else self._engine.file_changes()

    def collect(self, job: TrainJobRecord, *, over: bool = False) -> tuple[bool, bool]:
        """Read a bounded part of what is new; with ``over``, nothing is written any more. Else the
        job is watched from then on.

        Returns whether that was all, and whether there was anything.
        """
        if self._engine is None or not job.spec.workload.tasks:
            return True, False
        now = _Pass(self._engine, job.key.uid, job.key.org, list(self._folders(job)))
        try:
            self._read_event_files(now, job, over=over)
            if not over and self._has_new_folders(now):
                # They are watched from now on: read what came before that.
                self._read_event_files(now, job, over=over)
            self._read_logs(now, job, over=over)
        except NoParser as error:
            logger.warning("points of files of %s are not read: %s", job.key.name, error)
            if over:  # a job ends, whether its files can be read or not
                self._events.unreadable(now.uid, f"event files and logs are not read: {error}")
            return True, False
        return now.pieces > 0, now.pieces < _PIECES

    def forget(self, uid: str) -> None:
        """The job is gone or over."""
        self._incomplete_jobs.discard(uid)
        self._known.pop(uid, None)
        if self._engine is not None:
            self._engine.unwatch_files(uid)

    # ---- event files

    def _find_event_files(self, now: _Pass, job: TrainJobRecord, *, over: bool) -> EventFiles:
        """Find them, and watch where others may appear before they are looked for: what is written
        from then on is heard.
        """
        since = job.created_at - _MARGIN
        if over:
            return now.engine.event_files(now.uid, now.folders, since)
        self.watch(job)
        found = now.engine.event_files(now.uid, now.folders, since)
        known = self._known.setdefault(now.uid, _Known())
        if set(found.recent) <= set(known.recent):
            return found
        known.recent = found.recent
        self.watch(job)
        return now.engine.event_files(now.uid, now.folders, since)

    def _has_new_folders(self, now: _Pass) -> bool:
        """Note the folders in which files grow, or may soon. Returns whether one was not known."""
        known = self._known.setdefault(now.uid, _Known())
        grown = known.add_grown(now.grown)
        return known.add_quiet([path for _, path in sorted(now.quiet)]) or grown

    def _read_event_files(self, now: _Pass, job: TrainJobRecord, *, over: bool) -> None:
        found = self._find_event_files(now, job, over=over)
        if not found.files:
            return
        positions = dict(self._store.metrics.positions(now.uid))
        known = {file.path: file for file in positions if file.source == EVENT_FILES}
        bases = [_state_of(positions[file]).base for file in known.values()]
        next_base = max(bases, default=-_SESSIONS) + _SESSIONS
        task = job.spec.workload.tasks[0]
        if found.incomplete:
            self._tell_incomplete(now.uid, found.incomplete)
        for each in sorted(found.files, key=lambda one: name_order(one.path)):
            file = known.get(each.path)
            if file is None:
                if len(known) >= self._settings.event_files_per_job:
                    most = self._settings.event_files_per_job
                    self._tell_incomplete(now.uid, f"there are more than {most}")
                    continue
                file = ReportFile(job.status.attempt, task, EVENT_FILES, each.path)
                known[each.path] = file
            position = positions.get(file, NOT_READ)
            if self._is_another_file(now, each, position):
                # Read it from the beginning, with new start numbers.
                state = _FileState(base=next_base)
                begin = FilePosition(each.identity, 0, state.text())
                next_base += _SESSIONS
            else:
                begin, state = position, _state_of(position)
            if state.stopped:
                continue
            if begin.offset < each.size:
                self._read_event_file(now, each, file, position, begin)
            if each.path not in now.grown:
                now.quiet.append((begin.offset, each.path))
            if now.pieces <= 0:
                return

    def _is_another_file(self, now: _Pass, found: EventFile, position: FilePosition) -> bool:
        """Whether a file was replaced or truncated since it was read. One that was written anew in
        its place, and is longer now, has another head.
        """
        if position.identity != found.identity or found.size < position.offset:
            return True
        head = _state_of(position).head
        if not head or found.size == position.offset:
            return False
        with now.engine.open_event_file(now.uid, now.folders, found.path) as descriptor:
            if descriptor is None:
                return False
            return _read_head(descriptor, int(head.partition(":")[0])) != head

    def _read_event_file(
        self,
        now: _Pass,
        found: EventFile,
        file: ReportFile,
        stored: FilePosition,
        position: FilePosition,
    ) -> None:
        """Read pieces of a file until nothing is new, or this pass has read enough."""
        uid, run = now.uid, run_of(found.below)
        with now.engine.open_event_file(uid, now.folders, found.path) as descriptor:
            while descriptor is not None and now.pieces > 0:
                state = _state_of(position)
                try:
                    piece = self._parser.read_events(
                        descriptor, position.offset, EventSession(state.session, state.purge)
                    )
                except UnreadableFile as error:
                    self._stop(now, file, stored, position, str(error))
                    return
                after = replace(state, session=piece.session.number, purge=piece.session.purge)
                offset = position.offset + piece.taken
                if not position.offset:
                    after = replace(after, head=_read_head(descriptor, piece.taken))
                if piece.broken:
                    after = replace(after, stopped=piece.broken)
                if offset > self._settings.file_bytes:
                    limit = f"beyond {self._settings.file_bytes} bytes"
                    after = replace(after, stopped=f"points {limit} are not kept")
                if not piece.taken and not after.stopped:
                    return
                now.pieces -= 1
                if found.path not in now.grown:
                    now.grown.append(found.path)
                moved = FilePosition(position.identity, offset, after.text())
                values = [
                    one._replace(name=_join_name(run, one.name), restart=state.base + one.restart)
                    for one in piece.values
                    if is_metric_name(_join_name(run, one.name))
                ]
                tags = [
                    replace(one, name=_join_name(run, one.name))
                    for one in piece.tags
                    if is_metric_name(_join_name(run, one.name))
                ]
                if not self._append(now, file, values, stored, moved, tags=tags):
                    return
                if after.stopped:
                    self._events.unreadable(uid, f"{_describe_file(file)}: {after.stopped}")
                    return
                stored = position = moved

    def _tell_incomplete(self, uid: str, why: str) -> None:
        if uid not in self._incomplete_jobs:
            self._incomplete_jobs.add(uid)
            self._events.refused(uid, [f"some event files are not read: {why}"])

    def _folders(self, job: TrainJobRecord) -> Iterator[BucketFolder]:
        """The folders of buckets in which the job may write event files."""
        submitted = job.spec.submitted
        for uri in dict.fromkeys((submitted.tensorboard_logdir, submitted.output_path)):
            if not uri or not uri.startswith("fds://"):
                continue
            bucket, prefix = split_uri(uri)
            if self._owns(job.key.org, bucket):
                yield BucketFolder(bucket, prefix.strip("/"))

    # ---- logs

    def _read_logs(self, now: _Pass, job: TrainJobRecord, *, over: bool) -> None:
        patterns = job.spec.submitted.metric_patterns
        if not patterns:
            return
        last = job.status.attempt
        positions = dict(self._store.metrics.positions(now.uid))
        logs = [file.attempt for file in positions if file.source == LOG]
        for attempt in range(max([1, last - _ATTEMPTS, *logs]), last + 1):
            for task in job.spec.workload.tasks:
                file = ReportFile(attempt, task, LOG)
                position = positions.get(file, NOT_READ)
                final = over or attempt < last
                self._read_log(now, file, position, patterns, final=final)
                if now.pieces <= 0:
                    return

    def _read_log(
        self,
        now: _Pass,
        file: ReportFile,
        position: FilePosition,
        patterns: Sequence[str],
        *,
        final: bool,
    ) -> None:
        """Read pieces of a log until nothing is new, or this pass has read enough."""
        uid = now.uid
        key = GangKey(uid, file.attempt)
        while now.pieces > 0 and not (state := _state_of(position)).stopped:
            with now.engine.open_log(key, file.task, position.offset) as part:
                if part is None:
                    return
                try:
                    piece = self._parser.read_log(
                        part.descriptor,
                        part.offset,
                        part.left,
                        patterns=patterns,
                        steps=state.steps or {},
                        at=part.at,
                        final=final or not part.last,
                    )
                except UnreadableFile as error:
                    self._stop(now, file, position, position, str(error))
                    return
            if not piece.taken:
                return
            now.pieces -= 1
            after = replace(state, steps=piece.steps)
            moved = FilePosition("log", part.position + piece.taken, after.text())
            if not self._append(now, file, piece.values, position, moved):
                return
            position = moved

    # ---- both

    def _append(
        self,
        now: _Pass,
        file: ReportFile,
        values: Sequence[Value],
        before: FilePosition,
        after: FilePosition,
        *,
        tags: Sequence[SummaryTag] = (),
    ) -> bool:
        """Store points with the position behind them; false if somebody else has done that."""
        uid, limits = now.uid, self._limits.of(now.org)
        try:
            failpoints.here("metrics.file.before")
            appended = self._store.metrics.append(
                uid, file, self._within(uid, values, limits.series), before=before, after=after,
                limits=limits, tags=self._tags_within(uid, tags, limits.series),
            )  # fmt: skip
            failpoints.here("metrics.file.after")
        except NotFound:  # the job is gone
            return False
        except StaleRevision:  # another collector was here, and may not be at the end
            now.pieces = 0
            return False
        if appended.first:
            self._events.refused(uid, appended.refused)
        self._events.first_nan(uid, file, values)
        return True

    def _within(self, uid: str, values: Sequence[Value], most: int) -> Sequence[Value]:
        """Leave out all new series but one beyond the limit. That one is refused by its name: a
        file of a million names costs no more than one of a hundred.
        """
        names = dict.fromkeys(value.name for value in values)
        if len(names) <= 1:
            return values
        known = {series.name for series in self._store.metrics.series(uid)}
        room = max(0, most - len(known)) + 1
        allowed = known | set([name for name in names if name not in known][:room])
        return [value for value in values if value.name in allowed]

    def _tags_within(self, uid: str, tags: Sequence[SummaryTag], most: int) -> Sequence[SummaryTag]:
        """The same for tags with summaries."""
        if len(tags) <= 1:
            return tags
        known = {(tag.name, tag.kind) for tag in self._store.metrics.tags(uid)}
        new = [tag for tag in tags if (tag.name, tag.kind) not in known]
        beyond = set(new[max(0, most - len(known)) + 1 :])
        return [tag for tag in tags if tag not in beyond]

    def _stop(
        self, now: _Pass, file: ReportFile, stored: FilePosition, at: FilePosition, why: str
    ) -> None:
        """Read a file no more."""
        state = replace(_state_of(at), stopped=why[:500])
        if self._append(now, file, [], stored, replace(at, state=state.text())):
            where = f"{_describe_file(file)} from byte {at.offset} on"
            self._events.unreadable(now.uid, f"{where} is not read: {why}")


def _join_name(run: str, tag: str) -> str:
    return f"{run}/{tag}" if run else tag


def _describe_file(file: ReportFile) -> str:
    return file.path or f"the log of {file.task} in attempt {file.attempt}"

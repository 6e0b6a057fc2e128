"""The output of a job's tasks, over all attempts, now and as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.engines.abilities import ALL_TASKS, WHOLE_LOG, LogTimes, LogView
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import GangKey
from cloud_ml.models import common
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.changes import ChangeHub
from cloud_ml.usecases.jobs.role_lines import RoleLines
from cloud_ml.usecases.jobs.tasks import suggest_task
from cloud_ml.usecases.offload import Offload

MOST_LINES = 1_000_000

_KINDS: Mapping[str, Kind[Any, WorkloadStatus]] = {
    kind.name: kind for kind in (TRAIN_JOB, REPLICA, TENSORBOARD)
}
"""The kinds of records that have output."""
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25
_IDLE_PAUSE_S = 2.0
_ON_ENGINE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.FINISHING, Phase.STOPPING})


@dataclass(frozen=True)
class Selection:
    """Which output.

    Args:
        task: A process such as ``master-0``; all of them, line by line, when ``None``.
        attempt: Only this attempt; all of them, one after the other, when ``None``.
        lines: Only the last so many lines of what there is now.
        follow: Go on until the job (or the attempt) has ended.
        offset: Leave out so many bytes at the beginning; not together with ``lines``.
        view: Without the installation, or with times.
        role: Only the lines of its tasks, each with the task's name before it.
    """

    task: str | None = None
    attempt: int | None = None
    lines: int | None = None
    follow: bool = False
    offset: int = 0
    view: LogView = WHOLE_LOG
    role: str | None = None


class Logs:
    """Reads the logs that an engine keeps."""

    def __init__(self, store: StateStore, engine: Engine, hub: ChangeHub, offload: Offload) -> None:
        self._store = store
        self._engine = engine
        self._hub = hub
        self._offload = offload

    def read(self, record: WorkloadRecord, selection: Selection) -> AsyncGenerator[bytes]:
        """The selected output in chunks, exactly as it was written.

        Between two attempts stands a line feed if the first one's output does not end in one.

        Raises:
            InvalidRequest: At once: there is no such task or attempt, or ``lines`` is out of range.
        """
        task = _checked_task(record, selection.task)
        _check_role(record, selection)
        if selection.attempt is not None:
            common.check_count("attempt", selection.attempt, most=_most_attempts(record))
        if selection.lines is not None:
            common.check_count("lines", selection.lines, least=0, most=MOST_LINES)
            if selection.offset:
                raise common.refuse("offset", selection.offset, "nothing together with lines")
        if selection.role is not None and task == ALL_TASKS:
            return self._of_role(record, selection)
        chunks = (
            self._follow(record, task, selection)
            if selection.follow
            else self._now(record, task, selection)
        )
        return _without(_with_line_breaks(chunks), selection.offset)

    async def _of_role(self, record: WorkloadRecord, selection: Selection) -> AsyncGenerator[bytes]:
        """The lines of a role among those of all tasks. Its last lines are counted first, so that
        none is held.
        """
        skipped = 0
        if selection.lines is not None:
            every = replace(selection, lines=None, follow=False)
            async with aclosing(self._of_role(record, every)) as chunks:
                count, last = 0, b"\n"
                async for chunk in chunks:
                    count, last = count + chunk.count(b"\n"), chunk[-1:]
            skipped = max(0, count + (last != b"\n") - selection.lines)
        whole = self.read(record, replace(selection, lines=None, offset=0, role=None))
        found = _role_lines(whole, selection.role or "", timestamps=selection.view.timestamps)
        async with aclosing(_without(_without_lines(found, skipped), selection.offset)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def written_before(
        self, record: WorkloadRecord, selection: Selection, moment: datetime
    ) -> int:
        """How many bytes of what ``read`` gives are older than ``moment``, as exactly as the engine
        knows.

        Raises:
            InvalidRequest: There is no such task, or the engine does not know when output was
                written.
        """
        task, uid = _checked_task(record, selection.task), record.key.uid
        _check_role(record, selection)
        engine = self._engine
        if not isinstance(engine, LogTimes):
            raise common.refuse(
                "since", moment.isoformat(), "nothing: this engine does not note the time of output"
            )
        if selection.view.timestamps:
            return await _size_before(self.read(record, replace(selection, follow=False)), moment)
        if selection.role is not None and task == ALL_TASKS:
            every = replace(selection, role=None, follow=False)
            older = await self.written_before(record, every, moment)
            beginning = _first(self.read(record, every), older)
            found = _role_lines(beginning, selection.role, timestamps=False)
            return sum([len(chunk) async for chunk in found])
        before = 0
        ends_line = True
        for attempt in await self._attempts(uid, task, selection.attempt):
            before += not ends_line  # the line feed between two attempts
            older = await engine.written_before(GangKey(uid, attempt), task, moment, selection.view)
            size, ends_line = await self._size(uid, attempt, task, selection.view)
            before += min(older, size)
            if older < size:
                break
        return before

    async def _size(self, uid: str, attempt: int, task: str, view: LogView) -> tuple[int, bool]:
        size, last = 0, b"\n"
        async with aclosing(self._output(uid, attempt, task, None, view, follow=False)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                last = chunk[-1:] or last
        return size, last == b"\n"

    async def _now(
        self, record: WorkloadRecord, task: str, selection: Selection
    ) -> AsyncGenerator[tuple[int, bytes]]:
        attempts = await self._attempts(record.key.uid, task, selection.attempt)
        for attempt, lines in await self._tails(
            record.key.uid, task, attempts, selection.lines, selection.view
        ):
            output = self._output(
                record.key.uid, attempt, task, lines, selection.view, follow=False
            )
            async with aclosing(output) as chunks:
                async for chunk in chunks:
                    yield attempt, chunk

    async def _follow(
        self, record: WorkloadRecord, task: str, selection: Selection
    ) -> AsyncGenerator[tuple[int, bytes]]:
        uid, lines = record.key.uid, selection.lines
        kind = _KINDS[record.key.kind]
        given: set[int] = set()
        pauses = _Pauses()
        with self._hub.watch(uid) as watch:
            while True:
                # The record before the engine: an attempt that is listed after the job's end was
                # given by then.
                now = await self._offload(self._store.get, kind, uid)
                fresh = [
                    a for a in await self._attempts(uid, task, selection.attempt) if a not in given
                ]
                for attempt, tail in await self._tails(uid, task, fresh, lines, selection.view):
                    async with aclosing(
                        self._output(uid, attempt, task, tail, selection.view, follow=True)
                    ) as chunks:
                        async for chunk in chunks:
                            yield attempt, chunk
                if fresh:
                    given.update(fresh)
                    lines = None
                elif watch.closed or now is None or _over(now, selection.attempt):
                    return
                else:
                    await watch.wait(pauses.next(now))

    async def _attempts(self, uid: str, task: str, only: int | None) -> Sequence[int]:
        streams = await self._engine.log_streams(uid)
        return [
            attempt for attempt, process in streams if process == task and only in (None, attempt)
        ]

    async def _tails(
        self, uid: str, task: str, attempts: Sequence[int], lines: int | None, view: LogView
    ) -> Sequence[tuple[int, int | None]]:
        """How many of its last lines each attempt gives, so that all of them together give
        ``lines``.
        """
        if lines is None:
            return [(attempt, None) for attempt in attempts]
        tails: list[tuple[int, int | None]] = []
        for attempt in reversed(attempts):
            if tails and lines <= 0:
                break
            tails.insert(0, (attempt, lines))
            # The oldest attempt need not be counted, because no other attempt precedes it.
            if attempt != attempts[0]:
                lines -= await self._count(uid, attempt, task, lines, view)
        return tails

    async def _count(self, uid: str, attempt: int, task: str, lines: int, view: LogView) -> int:
        count, last = 0, b""
        async for chunk in self._output(uid, attempt, task, lines, view, follow=False):
            count += chunk.count(b"\n")
            last = chunk[-1:] or last
        return count + (last not in (b"", b"\n"))

    async def _output(
        self, uid: str, attempt: int, task: str, lines: int | None, view: LogView, *, follow: bool
    ) -> AsyncGenerator[bytes]:
        output = self._engine.logs(
            GangKey(uid, attempt), task, lines=lines, follow=follow, view=view
        )
        try:
            async for chunk in output:
                yield chunk
        finally:
            if (close := getattr(output, "aclose", None)) is not None:
                await close()


class _Pauses:
    """How long a follower waits for a sign.

    Short at first in each phase on the engine: a log begins before the store hears of it, and the
    first line is what the user waits for.
    """

    def __init__(self) -> None:
        self._phase: tuple[int, Phase] | None = None
        self._pause = _FIRST_PAUSE_S

    def next(self, record: WorkloadRecord) -> float:
        phase = (record.status.attempt, record.status.phase)
        if phase != self._phase:
            self._phase, self._pause = phase, _FIRST_PAUSE_S
        if record.status.phase not in _ON_ENGINE:
            return _IDLE_PAUSE_S
        pause, self._pause = self._pause, min(_LONGEST_PAUSE_S, 2 * self._pause)
        return pause


def _over(record: WorkloadRecord, attempt: int | None) -> bool:
    """Whether no more output can come."""
    phase = record.status.phase
    if phase.terminal or phase is Phase.SAVED:
        return True
    return attempt is not None and record.status.attempt > attempt


def _most_attempts(record: WorkloadRecord) -> int:
    """Those there were, or are to be expected: some attempts cost no retry."""
    if record.status.phase.terminal:
        return record.status.attempt
    return max(record.status.attempt, record.spec.workload.retry.max_retries + 1)


def _checked_task(record: WorkloadRecord, task: str | None) -> str:
    tasks = record.spec.workload.tasks
    if task is None:
        return tasks[0] if len(tasks) == 1 else ALL_TASKS
    if task not in tasks:
        shown = ", ".join(tasks[:20]) + (", …" if len(tasks) > 20 else "")
        raise common.refuse("task", task, shown, suggestion=suggest_task(record, task))
    return task


def _check_role(record: WorkloadRecord, selection: Selection) -> None:
    if selection.role is None:
        return
    if selection.task is not None:
        raise common.refuse("role", selection.role, "nothing together with task")
    roles = [role.name for role in record.spec.workload.roles]
    if selection.role not in roles:
        raise common.refuse("role", selection.role, "one of " + ", ".join(roles))


async def _role_lines(
    chunks: AsyncGenerator[bytes], role: str, *, timestamps: bool
) -> AsyncGenerator[bytes]:
    lines = RoleLines(role, timestamps=timestamps)
    async with aclosing(chunks):
        async for chunk in chunks:
            if found := lines.feed(chunk):
                yield found
    if rest := lines.end():
        yield rest


async def _without_lines(chunks: AsyncGenerator[bytes], count: int) -> AsyncGenerator[bytes]:
    """What comes after the first ``count`` line feeds."""
    async with aclosing(chunks):
        async for chunk in chunks:
            start = 0
            while count and (end := chunk.find(b"\n", start)) >= 0:
                start, count = end + 1, count - 1
            if not count and start < len(chunk):
                yield chunk[start:]


async def _first(chunks: AsyncGenerator[bytes], count: int) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk[:count]
            if (count := count - len(chunk)) <= 0:
                return


async def _size_before(chunks: AsyncGenerator[bytes], moment: datetime) -> int:
    """How many bytes of a log with times come before the first line that is not older than
    ``moment``.
    """
    earliest = (
        moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    )
    size, at_line_start = 0, True
    async with aclosing(chunks):
        async for chunk in chunks:
            for line in chunk.splitlines(keepends=True):
                if at_line_start and line[: len(earliest)] >= earliest:
                    return size
                size += len(line)
                at_line_start = line.endswith(b"\n")
    return size


async def _without(chunks: AsyncGenerator[bytes], count: int) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            if count < len(chunk):
                yield chunk[count:] if count else chunk
            count = max(0, count - len(chunk))


async def _with_line_breaks(chunks: AsyncGenerator[tuple[int, bytes]]) -> AsyncGenerator[bytes]:
    before: int | None = None
    ends_line = True
    async with aclosing(chunks):
        async for attempt, chunk in chunks:
            if before not in (None, attempt) and not ends_line:
                yield b"\n"
            yield chunk
            before, ends_line = attempt, chunk.endswith(b"\n")

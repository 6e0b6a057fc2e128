"""The limits of one process: set, watched, and named when they are the cause of its end."""

from __future__ import annotations

import errno
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml.domain.workloads.phases import Usage
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import UsagePoint
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group, Limits, Sample
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.processes import usage_samples
from cloud_ml.engines.local.processes.launch import Exit
from cloud_ml.models.common import format_memory

_CLOSE = 0.95
_PROGRESS = 0.10
_FAULTS_PER_S = 10.0
_CLOSE_PERIOD_S = 1.0


@dataclass(frozen=True)
class Verdict:
    """Why a process ended or must end."""

    reason: Reason
    message: str


class Limiter:
    """Keeps one process within its limits and its usage on record.

    Args:
        config: The operator's bounds.
        plan: What the user asked for.
        base_memory: What the runtime needs by itself, in bytes; added to what was asked for.
        group: The control group, or the tree of processes that is watched where there is none.
        folder: Where usage is noted.
        used: Whether the group has used what is not of this process.
        built: Whether tools ran in the group before, which may have been killed for their memory.
        peak_before: What a task before this one has used in the group at most, in bytes.

    Raises:
        OSError: The limits cannot be set.
    """

    def __init__(
        self,
        config: LocalConfig,
        plan: ProcessPlan,
        base_memory: int,
        group: Group,
        folder: Path,
        *,
        used: bool = False,
        built: bool = False,
        peak_before: int = 0,
    ) -> None:
        self._requested_bytes = plan.memory_bytes or config.default_memory_bytes or None
        self._limit = self._requested_bytes + base_memory if self._requested_bytes else None
        self._base = base_memory
        self._group = group
        self._name = plan.name
        self._period_s = config.usage_period_s
        self._thrash_s = config.thrash_s
        self._folder = folder
        self._last: Sample | None = None
        self._last_at = time.monotonic()
        self._stuck_since: float | None = None
        self.next_look = self._last_at + min(self._period_s, _CLOSE_PERIOD_S)
        self._before_s = 0.0
        self._killed_before = 0
        self._peak_before = peak_before
        self._most_seen = 0
        if built:
            self._killed_before = group.sample().oom_kills
        if used:
            self._last = group.sample()
            self._before_s, self._killed_before = self._last.cpu_seconds, self._last.oom_kills
            # Version 1 of control groups refuses a limit below what is in use, version 2 kills to
            # get there. So it is checked here, the same for both.
            if self._limit and self._last.anonymous_bytes >= self._limit:
                raise OSError(errno.EBUSY, "more memory is used already than the limit allows")
        group.limit(
            Limits(self._limit, plan.cpu_millis, config.max_processes, plan.cpu_request_millis)
        )

    def look(self, now: float) -> Verdict | None:
        """Take a sample; a verdict if the process is past its memory limit, or makes no progress at
        it.

        Past it is only possible where nobody enforces it. At it, under version 1 of control groups,
        the kernel may reclaim for minutes instead of killing, so a task whose own pages fill the
        limit, that reads the others from the disk again and again and gets hardly any user time
        counts as out of memory.
        """
        sample, before, elapsed = self._group.sample(), self._last, now - self._last_at
        self._note(sample, before, elapsed)
        self._last, self._last_at = sample, now
        close = self._limit is not None and sample.anonymous_bytes >= _CLOSE * self._limit
        often = close or (self._limit is not None and not self._group.enforced)
        self.next_look = now + (min(_CLOSE_PERIOD_S, self._period_s) if often else self._period_s)
        if (
            self._limit is not None
            and not self._group.enforced
            and sample.memory_bytes > self._limit
        ):
            return Verdict(Reason.OUT_OF_MEMORY, self._memory_sentence())
        if not close or before is None or not _stuck(sample, before, elapsed):
            self._stuck_since = None
            return None
        self._stuck_since = self._stuck_since if self._stuck_since is not None else now - elapsed
        if now - self._stuck_since < self._thrash_s:
            return None
        return Verdict(Reason.OUT_OF_MEMORY, f"{self._memory_sentence()} (thrashing)")

    def judge(self, end: Exit, name: str) -> Verdict:
        """Name the cause of an end."""
        if end.good:
            return Verdict(Reason.COMPLETED, "the task completed")
        if not end.started:
            return Verdict(
                Reason.START_FAILED,
                f"{name} could not be started; the log has the words of the sandbox",
            )
        # Check this before the signal: the OOM killer's SIGKILL looks like any other.
        if (killed := self.kill_for_memory()) is not None:
            return killed
        if end.signal is not None:
            return Verdict(
                Reason.SIGNALED, f"{name} was killed by signal {signal_name(end.signal)}"
            )
        return Verdict(Reason.NON_ZERO_EXIT, f"{name} exited with code {end.code}")

    def kill_for_memory(self) -> Verdict | None:
        """That the kernel has killed a process for its memory, if it has. The others may live."""
        if self._limit is None or self._group.sample().oom_kills <= self._killed_before:
            return None
        return Verdict(Reason.OUT_OF_MEMORY, self._memory_sentence())

    def usage(self) -> Usage:
        """What the process has used in all."""
        sample = self._group.sample()
        cpu = sample.cpu_seconds - self._before_s
        peak = sample.memory_peak_bytes
        if peak <= self._peak_before:  # the kernel's figure is of the task before
            peak = max(self._most_seen, sample.memory_bytes)
        return Usage(round(cpu, 3), sample.memory_bytes, peak, sample.processes)

    @property
    def cpu_seconds(self) -> float:
        """The processor time that the group had used at the last look."""
        return self._last.cpu_seconds if self._last is not None else 0.0

    def kill(self) -> None:
        """End whatever is still in the control group."""
        self._group.kill()

    def _memory_sentence(self) -> str:
        base = f" (and {format_memory(self._base)} for the runtime)" if self._base else ""
        return f"OOMKilled: {format_memory(self._requested_bytes or 0)}{base} exceeded"

    def _note(self, sample: Sample, before: Sample | None, elapsed: float) -> None:
        cores = (sample.cpu_seconds - (before.cpu_seconds if before else 0.0)) / max(elapsed, 1e-3)
        point = UsagePoint(
            at=datetime.now(UTC),
            process=self._name,
            cores=round(cores, 3),
            memory_bytes=sample.memory_bytes,
            processes=sample.processes,
        )
        usage_samples.add(self._folder, point)
        self._most_seen = max(self._most_seen, sample.memory_bytes)


def _stuck(sample: Sample, before: Sample, elapsed: float) -> bool:
    user = sample.user_cpu_seconds - before.user_cpu_seconds
    faults = sample.major_faults - before.major_faults
    return faults > _FAULTS_PER_S * elapsed and user < _PROGRESS * elapsed


def signal_name(number: int) -> str:
    """Such as ``SIGKILL``; the number as text for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

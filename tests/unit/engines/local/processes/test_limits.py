"""When a task counts as out of memory: a control group that says what the test wants it to say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group, Limits, Sample
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.processes.launch import Exit
from cloud_ml.engines.local.processes.limits import Limiter, Verdict

MIB = 2**20
CALM = Sample(1.0, 1.0, 10 * MIB, 10 * MIB, 1, 10 * MIB, 0, 0)
FULL = replace(CALM, memory_bytes=100 * MIB, memory_peak_bytes=100 * MIB, anonymous_bytes=99 * MIB)


class Scripted(Group):
    name = "scripted"

    def __init__(self, samples: Iterator[Sample], *, enforced: bool = True) -> None:
        self.samples = samples
        self.enforced = enforced
        self.limits: Limits | None = None

    def limit(self, limits: Limits) -> None:
        self.limits = limits

    def procs_files(self) -> list[str]:
        return []

    def processes(self) -> list[int]:
        return []

    def sample(self) -> Sample:
        return next(self.samples)

    def remove(self) -> bool:
        return True


def limiter(group: Group, folder: Path, *, base: int = 0) -> Limiter:
    config = LocalConfig("1", str(folder), "", "", "", "", thrash_s=30.0, usage_period_s=5.0)
    return Limiter(
        config, ProcessPlan("master", 0, ("x",), memory_bytes=100 * MIB), base, group, folder
    )


def looks(limits: Limiter, seconds: float) -> list[Verdict | None]:
    """Verdicts of a look every second."""
    start = limits.next_look
    return [limits.look(start + second) for second in range(int(seconds))]


def thrashing(*, user_per_second: float, faults_per_second: int = 100) -> Iterator[Sample]:
    user = hits = 0.0
    while True:
        yield replace(FULL, user_cpu_seconds=user, major_faults=int(hits))
        user += user_per_second
        hits += faults_per_second


def test_a_task_that_makes_no_progress_at_its_limit_is_out_of_memory(tmp_path: Path) -> None:
    verdicts = looks(limiter(Scripted(thrashing(user_per_second=0.01)), tmp_path), 40)
    assert verdicts[:29] == [None] * 29
    first = next(v for v in verdicts if v is not None)
    assert (first.reason, first.message) == (
        Reason.OUT_OF_MEMORY,
        "OOMKilled: 100M exceeded (thrashing)",
    )


@pytest.mark.parametrize(
    "samples",
    [
        thrashing(user_per_second=0.8),  # it computes
        thrashing(user_per_second=0.0, faults_per_second=0),  # it sleeps with its memory full
        (
            replace(s, anonymous_bytes=20 * MIB) for s in thrashing(user_per_second=0.0)
        ),  # files fill the limit
    ],
)
def test_a_full_task_that_is_well_goes_on(tmp_path: Path, samples: Iterator[Sample]) -> None:
    assert looks(limiter(Scripted(samples), tmp_path), 90) == [None] * 90


def test_progress_in_between_starts_the_clock_again(tmp_path: Path) -> None:
    def breathing() -> Iterator[Sample]:
        user = 0.0
        for second in range(1000):
            user += 0.9 if second % 20 == 0 else 0.0
            yield replace(FULL, user_cpu_seconds=user, major_faults=second * 10)

    assert looks(limiter(Scripted(breathing()), tmp_path), 90) == [None] * 90


def test_the_runtimes_own_need_is_added_and_both_are_shown(tmp_path: Path) -> None:
    group = Scripted(iter([replace(CALM, oom_kills=1)]))
    limits = limiter(group, tmp_path, base=1200 * MIB)
    assert group.limits is not None
    assert group.limits.memory_bytes == 1300 * MIB
    verdict = limits.judge(Exit(None, 9), "master-0")
    assert verdict.message == "OOMKilled: 100M (and 1.17G for the runtime) exceeded"


def test_where_nobody_enforces_the_limit_passing_it_ends_the_task(tmp_path: Path) -> None:
    over = replace(FULL, memory_bytes=101 * MIB)
    verdict = limiter(Scripted(iter([over]), enforced=False), tmp_path).look(1e9)
    assert verdict is not None
    assert verdict.reason is Reason.OUT_OF_MEMORY


def test_a_build_that_was_killed_for_its_memory_is_not_the_jobs_end(tmp_path: Path) -> None:
    killed = replace(CALM, oom_kills=2)
    config = LocalConfig("1", str(tmp_path), "", "", "", "")
    plan = ProcessPlan("master", 0, ("x",), memory_bytes=100 * MIB)
    after_a_build = Limiter(config, plan, 0, Scripted(iter([killed] * 9)), tmp_path, built=True)
    assert after_a_build.judge(Exit(1), "x").reason is Reason.NON_ZERO_EXIT
    worse = Limiter(
        config, plan, 0, Scripted(iter([killed, replace(CALM, oom_kills=3)])), tmp_path, built=True
    )
    assert worse.judge(Exit(1), "x").reason is Reason.OUT_OF_MEMORY


def test_a_kill_inside_a_task_that_ends_well_is_its_own_business(tmp_path: Path) -> None:
    limits = limiter(Scripted(iter([replace(CALM, oom_kills=1)])), tmp_path)
    assert limits.judge(Exit(0), "master-0").reason is Reason.COMPLETED

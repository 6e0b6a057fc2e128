"""More memory for the attempt after one that had too little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads import memory_growth
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.memory_growth import MoreMemory, in_force, with_memory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired
from support.jobs import NOW, gang_in, job_in

MIB = 2**20
GROWING: dict[str, Any] = {"memory_limit": "600M", "restart": {"memory_factor": 1.5}}
SEVERAL: dict[str, Any] = GROWING | {
    "recipe": "cluster",
    "cluster_spec": {
        "chief": {"memory_limit": "200M"},
        "worker": {"count": 2},
        "ps": {"memory_limit": "300M"},
    },
}
ARRAY: dict[str, Any] = GROWING | {"array": "0-9%4"}
EXCEEDED = "OOMKilled: 600M exceeded"


def running(fields: dict[str, Any] = GROWING, **status: Any) -> TrainJobRecord:
    return job_in(Phase.RUNNING, started_at=NOW, fields=fields, **status)


def out_of_memory(*tasks: tuple[str, int], attempt: int = 1, **facts: Any) -> ObservedGang:
    """An attempt of which these tasks had too little memory."""
    ended = tuple(
        ObservedProcess(
            role, index, False, Reason.OUT_OF_MEMORY, EXCEEDED, 137, "SIGKILL", NOW, NOW
        )
        for role, index in tasks or [("master", 0)]
    )
    others = (
        ObservedProcess("chief", 0, False, Reason.CANCELLED, "stopped"),
        ObservedProcess("ps", 0, False, Reason.CANCELLED, "stopped"),
    )
    processes = ended if not tasks else (*ended, *others)
    return gang_in(
        GangState.EXITED,
        Reason.OUT_OF_MEMORY,
        EXCEEDED,
        attempt=attempt,
        processes=processes,
        **facts,
    )


def decided(job: TrainJobRecord, gang: ObservedGang, refusal: str = "") -> WorkloadDecision:
    more = memory_growth.after_end(job, [gang])
    if more is not None:
        more = replace(more, refusal=refusal)
    return decide(job, [gang], NOW, has_slot=False, rules=Rules(), more_memory=more)


def status_of(decision: WorkloadDecision) -> WorkloadStatus:
    assert decision.status is not None
    return decision.status


def test_an_attempt_that_ran_out_of_memory_is_followed_by_one_with_more() -> None:
    decision = decided(running(), out_of_memory())
    status = status_of(decision)
    assert (status.phase, status.attempt, status.retries_used) == (Phase.RESTARTING, 2, 1)
    assert status.memory == {"master": 900 * MIB}
    assert "with more memory: master from 600M to 900M" in decision.events[-1].message
    assert "retry 1 of 3" in decision.events[-1].message


def test_memory_grows_from_what_it_is_by_now_and_is_counted_once_for_each_attempt() -> None:
    job = running(attempt=2, memory={"master": 900 * MIB})
    earlier = out_of_memory()
    assert memory_growth.after_end(job, [earlier]) is None, "that was counted"
    status = status_of(decided(job, out_of_memory(attempt=2)))
    assert status.memory == {"master": 1350 * MIB}


@pytest.mark.parametrize(
    ("limit", "factor", "most", "grown"),
    [
        ("100M", 1.5, None, "150M"),
        ("100M", 1.001, None, "101M"),  # whole MiB
        ("600M", 2, "1G", "1G"),
        ("600M", 2, "700.5M", "700.5M"),
        ("1.5G", 1.1, None, "1690M"),
    ],
)
def test_limits_are_rounded_up_and_bounded(
    limit: str, factor: float, most: str | None, grown: str
) -> None:
    restart = {"memory_factor": factor, "memory_most": most}
    job = running({"memory_limit": limit, "restart": restart})
    more = memory_growth.after_end(job, [out_of_memory()])
    assert more is not None
    assert more.limits == {"master": int(float(grown[:-1]) * {"M": MIB, "G": 2**30}[grown[-1]])}


def test_the_role_that_ran_out_of_memory_grows() -> None:
    more = memory_growth.after_end(running(SEVERAL), [out_of_memory(("worker", 1))])
    assert more == MoreMemory({"worker": 900 * MIB}, {"worker": 600 * MIB})
    job = running(SEVERAL, memory={"worker": 900 * MIB})
    limits = {
        role.name: role.resources.memory_bytes
        for role in in_force(job.spec.workload, job.status).roles
    }
    assert limits == {"chief": 200 * MIB, "worker": 900 * MIB, "ps": 300 * MIB}


def test_all_roles_that_ran_out_of_memory_grow() -> None:
    more = memory_growth.after_end(running(SEVERAL), [out_of_memory(("worker", 1), ("ps", 0))])
    assert more is not None
    assert more.sentence == "worker from 600M to 900M, ps from 300M to 450M"


def test_commands_around_the_code_have_the_limit_of_the_first_task() -> None:
    done = ObservedProcess("worker", 0, False, Reason.COMPLETED, "the job completed", 0)
    for processes in ((), (done,)):
        gang = replace(out_of_memory(), processes=processes)
        more = memory_growth.after_end(running(SEVERAL), [gang])
        assert more is not None
        assert more.sentence == "chief from 200M to 300M"


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", "Always"])
def test_it_holds_under_every_policy(policy: str) -> None:
    fields = GROWING | {"restart": {"memory_factor": 1.5, "policy": policy}}
    assert status_of(decided(running(fields), out_of_memory())).phase is Phase.RESTARTING


def test_other_ends_are_followed_as_the_policy_says() -> None:
    failed = gang_in(
        GangState.EXITED,
        Reason.NON_ZERO_EXIT,
        "master-0 exited with code 1",
        processes=(ObservedProcess("master", 0, False, Reason.NON_ZERO_EXIT, exit_code=1),),
    )
    assert memory_growth.after_end(running(), [failed]) is None
    assert status_of(decided(running(), failed)).phase is Phase.FAILED
    again = running(GROWING | {"max_retries": 2}, memory={"master": 900 * MIB})
    status = status_of(decided(again, failed))
    assert (status.phase, status.memory) == (Phase.RESTARTING, {"master": 900 * MIB})


def test_without_a_factor_the_job_fails() -> None:
    job = running({"memory_limit": "600M", "max_retries": 3})
    assert status_of(decided(job, out_of_memory())).phase is Phase.FAILED


def test_a_job_with_the_most_memory_fails_and_says_so() -> None:
    restart = {"memory_factor": 1.5, "memory_most": "900M"}
    job = running(GROWING | {"restart": restart}, memory={"master": 900 * MIB}, retries_used=1)
    decision = decided(job, out_of_memory())
    assert (status_of(decision).phase, status_of(decision).reason) == (
        Phase.FAILED,
        Reason.OUT_OF_MEMORY,
    )
    assert decision.events[-1].message == f"{EXCEEDED} (restart.memory_most is 900M)"
    assert status_of(decision).message == decision.events[-1].message


def test_what_could_never_start_is_not_tried() -> None:
    decision = decided(running(), out_of_memory(), refusal="this machine has 800M")
    assert status_of(decision).phase is Phase.FAILED
    assert decision.events[-1].message == f"{EXCEEDED} (this machine has 800M)"
    assert status_of(decision).memory == {}


def test_retries_are_used_up_by_it() -> None:
    decision = decided(running(retries_used=3), out_of_memory())
    assert status_of(decision).phase is Phase.FAILED
    assert decision.events[-1].message == f"{EXCEEDED} (all 3 retries are used)"


def test_a_rule_goes_before_it() -> None:
    rules = [{"exit_codes": [137], "action": "fail"}]
    job = running(GROWING | {"restart": {"memory_factor": 1.5, "rules": rules}})
    assert status_of(decided(job, out_of_memory())).phase is Phase.FAILED


def test_more_memory_is_progress() -> None:
    """The same end three times in a row is the last one, but not with more memory each time."""
    job, limits = running(GROWING | {"max_retries": 9}), []
    for attempt in range(1, 6):
        gang = out_of_memory(attempt=attempt)
        status = status_of(decided(job, gang))
        limits.append(status.memory["master"] // MIB)
        job = replace(job, status=replace(status, phase=Phase.RUNNING, started_at=NOW))
    assert limits == [900, 1350, 2025, 3038, 4557]


def test_an_array_runs_fewer_tasks_at_a_time_and_completed_ones_no_more() -> None:
    job = running(ARRAY)
    done = ObservedProcess("task", 0, False, Reason.COMPLETED, "the job completed", 0)
    gang = out_of_memory(("task", 3))
    gang = replace(gang, processes=(done, *gang.processes[:1]))
    status = status_of(decided(job, gang))
    assert (status.phase, status.memory) == (Phase.RESTARTING, {"task": 900 * MIB})
    assert [task.name for task in status.tasks] == ["task-0"]
    assert in_force(job.spec.workload, status).parallel == 2
    assert with_memory(job.spec.workload, {"task": 6000 * MIB}).parallel == 1


def test_a_job_that_has_no_room_for_its_memory_gives_up_its_place() -> None:
    job = job_in(
        Phase.RESTARTING,
        attempt=2,
        fields=GROWING,
        memory={"master": 900 * MIB},
        not_before=NOW,
        ports=(20000,),
    )
    decision = decide(job, [], NOW, has_slot=False, rules=Rules(), has_room=False)
    status = status_of(decision)
    assert (status.phase, status.attempt, status.queued_at) == (Phase.QUEUED, 2, NOW)
    assert (status.memory, status.ports, status.not_before) == ({"master": 900 * MIB}, (), None)
    assert "needs more memory" in decision.events[0].message
    queued = replace(job, status=status)
    started = decide(queued, [], NOW, has_slot=True, rules=Rules())
    assert (status_of(started).phase, status_of(started).memory) == (
        Phase.STARTING,
        {"master": 900 * MIB},
    )


def test_a_job_that_is_paused_keeps_its_memory() -> None:
    job = job_in(
        Phase.RESTARTING,
        attempt=2,
        fields=GROWING,
        desired=Desired.PAUSED,
        memory={"master": 900 * MIB},
    )
    status = status_of(decide(job, [], NOW, has_slot=False, rules=Rules()))
    assert (status.phase, status.memory) == (Phase.PAUSED, {"master": 900 * MIB})

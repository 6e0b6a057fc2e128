"""The decision at each look: for every phase, everything that may be seen, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess, UnsavedFiles
from cloud_ml.domain.records import Decision, EventType
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, RestartTask, StopGang
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.end import saving_outputs
from cloud_ml.domain.workloads.gangs import ON_REQUEST, restart_process
from cloud_ml.domain.workloads.phases import (
    ACTIVE,
    TERMINAL,
    Phase,
    TaskStatus,
    Usage,
    WorkloadStatus,
)
from cloud_ml.domain.workloads.progress import NO_END, Milestone
from cloud_ml.domain.workloads.queueing import WaitsFor
from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired, RequestedRestart, change_workload
from cloud_ml.models import codec
from support.jobs import NOW, gang_in, job_in, restarted_after

RULES = Rules(stop_grace_s=8.0, start_timeout_s=100.0)
GOOD = gang_in(GangState.EXITED, Reason.COMPLETED, "the job completed")
BAD = gang_in(GangState.EXITED, Reason.NON_ZERO_EXIT, "master-0 exited with code 3")
WAITING = {Phase.PAUSED, Phase.QUEUED, Phase.RESTARTING}
LIVE = [GangState.WAITING, GangState.STAGING, GangState.RUNNING, GangState.FINISHING]


def look(
    job: WorkloadRecord, *observed: ObservedGang, has_slot: bool = False, after_s: float = 0.0
) -> WorkloadDecision:
    return decide(job, observed, NOW + timedelta(seconds=after_s), has_slot=has_slot, rules=RULES)


# ---- before it runs


def test_a_saved_job_stays_saved_until_it_is_wanted() -> None:
    assert look(job_in(Phase.SAVED, desired=Desired.SAVED)) == Decision()
    queued = look(job_in(Phase.SAVED)).status
    assert queued is not None
    assert (queued.phase, queued.queued_at) == (Phase.QUEUED, NOW)


def test_a_queued_job_starts_only_with_a_slot() -> None:
    assert look(job_in(Phase.QUEUED)) == Decision()
    started = look(job_in(Phase.QUEUED), has_slot=True)
    assert started.status is not None
    assert (started.status.phase, started.status.attempt, started.status.starting_at) == (
        Phase.STARTING,
        1,
        NOW,
    )
    assert started.actions == (), "a pass commits or acts, never both"


def test_starting_is_acted_on_once_it_is_committed() -> None:
    decision = look(job_in(Phase.STARTING, attempt=2))
    assert (decision.status, decision.actions) == (None, [EnsureGang(2)])
    assert decision.requeue_at is not None


def test_while_it_stages_it_is_left_alone_until_the_start_limit() -> None:
    job, staging = job_in(Phase.STARTING, starting_at=NOW), gang_in(GangState.STAGING)
    patient = look(job, staging, after_s=99)
    assert (patient.actions, patient.requeue_at) == ((), NOW + timedelta(seconds=100))
    assert look(job, staging, after_s=100).actions == [StopGang(1, 0.0)]


def test_a_gang_in_the_engine_s_own_queue_says_why_and_has_time() -> None:
    job = job_in(Phase.STARTING, starting_at=NOW, reason=Reason.STARTING)
    waits = gang_in(GangState.WAITING, message="2 of 3 tasks fit")
    decision = look(job, waits, after_s=1)
    assert decision.status is not None
    assert (decision.status.phase, decision.status.reason, decision.status.message) == (
        Phase.STARTING,
        "WaitingForEngine",
        "2 of 3 tasks fit",
    )
    assert [one.message for one in decision.events] == ["2 of 3 tasks fit"]
    job = replace(job, status=decision.status)
    assert look(job, waits, after_s=10_000) == Decision(), "the start limit does not run"
    fewer = look(job, replace(waits, message="1 of 3 tasks fit"), after_s=10_000)
    assert fewer.status is not None
    assert fewer.status.message == "1 of 3 tasks fit"
    assert not fewer.events, "said once"
    placed = look(job, gang_in(GangState.STAGING), after_s=10_000)
    assert placed.status is not None
    assert (placed.status.reason, placed.status.message) == (Reason.STARTING, "")
    job = replace(job, status=placed.status)
    assert not look(job, gang_in(GangState.STAGING), after_s=10_099).actions
    assert look(job, gang_in(GangState.STAGING), after_s=10_100).actions == [StopGang(1, 0.0)]


def test_a_gang_that_its_engine_forgot_in_its_queue_is_handed_over_again() -> None:
    job = job_in(Phase.STARTING, starting_at=NOW, reason=Reason.WAITING_FOR_ENGINE)
    again = look(job, after_s=10_000).status
    assert again is not None
    assert look(replace(job, status=again), after_s=10_000).actions == [EnsureGang(1)]


@pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.PAUSED])
def test_a_gang_in_the_engine_s_own_queue_is_stopped(desired: Desired) -> None:
    waits = gang_in(GangState.WAITING, message="2 of 3 tasks fit")
    job = job_in(Phase.STARTING, desired=desired, reason=Reason.WAITING_FOR_ENGINE)
    stopping = look(job, waits).status
    assert stopping is not None
    assert stopping.phase is Phase.STOPPING
    (action,) = look(replace(job, status=stopping), waits).actions
    assert isinstance(action, StopGang)


def test_a_gang_that_found_a_place_and_ran_between_two_looks_has_started() -> None:
    job = job_in(Phase.STARTING, starting_at=NOW, reason=Reason.WAITING_FOR_ENGINE)
    running = gang_in(GangState.RUNNING, processes=(ObservedProcess("master", 0, running=True),))
    status = look(job, running).status
    assert status is not None
    assert (status.phase, status.reason, status.message) == (Phase.RUNNING, Reason.STARTED, "")


@pytest.mark.parametrize(
    "gang",
    [
        gang_in(GangState.TOMBSTONED),
        gang_in(GangState.EXITED, Reason.CANCELLED, "stopped while it was starting"),
    ],
)
def test_an_attempt_stopped_by_nobodys_wish_has_met_the_start_limit(gang: ObservedGang) -> None:
    ended = look(job_in(Phase.STARTING), gang).status
    assert ended is not None
    assert (ended.phase, ended.reason) == (Phase.FAILED, Reason.START_TIMEOUT)


# ---- while it runs


@pytest.mark.parametrize("before", [Phase.STARTING, Phase.RUNNING])
def test_running_and_finishing_are_noted_once(before: Phase) -> None:
    process = ObservedProcess("master", 0, running=True, started_at=NOW - timedelta(seconds=3))
    running = gang_in(GangState.RUNNING, processes=(process,), runtime="python 3.11", node="here")
    decision = look(job_in(before), running)
    if before is Phase.RUNNING:
        assert decision == Decision()
        finishing = look(job_in(before), gang_in(GangState.FINISHING)).status
        assert finishing is not None
        assert finishing.phase is Phase.FINISHING
    else:
        assert decision.status is not None
        assert decision.status.phase is Phase.RUNNING
        assert decision.status.started_at == process.started_at
        assert "attempt 1 is running in python 3.11 on here" in decision.events[0].message


def test_a_late_report_does_not_take_finishing_back() -> None:
    assert look(job_in(Phase.FINISHING), gang_in(GangState.RUNNING)) == Decision()


def test_the_end_may_be_seen_before_the_start() -> None:
    ended = look(job_in(Phase.STARTING), GOOD).status
    assert ended is not None
    assert ended.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.FINISHING])
def test_an_attempt_of_which_no_trace_is_left_never_starts_again(phase: Phase) -> None:
    decision = look(job_in(phase))
    assert decision.actions == ()
    assert decision.status is not None
    assert (decision.status.phase, decision.status.reason) == (Phase.FAILED, Reason.NODE_LOST)


# ---- how it ends


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.FINISHING])
@pytest.mark.parametrize(
    ("gang", "ends", "reason"),
    [
        (GOOD, Phase.SUCCEEDED, Reason.COMPLETED),
        (BAD, Phase.FAILED, Reason.NON_ZERO_EXIT),
        (
            gang_in(GangState.EXITED, Reason.OUT_OF_MEMORY, "OOMKilled"),
            Phase.FAILED,
            Reason.OUT_OF_MEMORY,
        ),
        (gang_in(GangState.EXITED, Reason.TIME_LIMIT, "too long"), Phase.FAILED, Reason.TIME_LIMIT),
        (gang_in(GangState.LOST, Reason.NODE_LOST, "restarted"), Phase.FAILED, Reason.NODE_LOST),
        (
            gang_in(GangState.LOST, Reason.SUPERVISOR_LOST, "killed"),
            Phase.FAILED,
            Reason.SUPERVISOR_LOST,
        ),
    ],
)
def test_an_end_is_final_and_has_its_reason(
    phase: Phase, gang: ObservedGang, ends: Phase, reason: Reason
) -> None:
    decision = look(job_in(phase), gang)
    assert decision.status is not None
    assert (decision.status.phase, decision.status.reason, decision.status.message) == (
        ends,
        reason,
        gang.message,
    )
    assert decision.status.finished_at == NOW
    assert decision.events[0].type is (
        EventType.NORMAL if ends is Phase.SUCCEEDED else EventType.WARNING
    )


def ended_after(seconds: float, **facts: object) -> ObservedGang:
    """A gang whose process ran from ``NOW`` for so long."""
    process = ObservedProcess(
        "master",
        0,
        running=False,
        reason=Reason.COMPLETED,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=seconds),
    )
    return replace(GOOD, processes=(process,), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.FINISHING])
def test_a_job_ends_with_its_process_however_late_that_is_seen(phase: Phase) -> None:
    ended = look(job_in(phase), ended_after(7), after_s=100).status
    assert ended is not None
    assert (ended.started_at, ended.finished_at) == (NOW, NOW + timedelta(seconds=7))


def test_a_cancelled_job_ends_with_its_process() -> None:
    ended = look(
        job_in(Phase.STOPPING, desired=Desired.STOPPED), ended_after(7), after_s=100
    ).status
    assert ended is not None
    assert (ended.phase, ended.finished_at) == (Phase.STOPPED, NOW + timedelta(seconds=7))


def test_a_finish_command_belongs_to_the_time_of_a_job() -> None:
    gang = ended_after(7, stages={"started": NOW, "ended": NOW + timedelta(seconds=9)})
    ended = look(
        job_in(Phase.FINISHING, fields={"finish_command": "tar c ."}), gang, after_s=100
    ).status
    assert ended is not None
    assert ended.finished_at == NOW + timedelta(seconds=9)


def test_an_attempt_without_a_process_ends_when_the_engine_gave_up() -> None:
    gang = gang_in(
        GangState.EXITED,
        Reason.ENVIRONMENT_FAILED,
        "x",
        stages={"ended": NOW + timedelta(seconds=3)},
    )
    ended = look(job_in(Phase.STARTING), gang, after_s=100).status
    assert ended is not None
    assert ended.finished_at == NOW + timedelta(seconds=3)


@pytest.mark.parametrize(("at_s", "expected_s"), [(-50, 5), (500, 100)])
def test_a_clock_that_was_set_makes_no_end_before_the_start_and_none_in_the_future(
    at_s: float, expected_s: float
) -> None:
    job = job_in(Phase.RUNNING, started_at=NOW + timedelta(seconds=5))
    ended = look(job, ended_after(at_s), after_s=100).status
    assert ended is not None
    assert ended.finished_at == NOW + timedelta(seconds=expected_s)


def test_the_process_that_failed_first_explains_the_end() -> None:
    def process(index: int, reason: Reason, after_s: float, code: int) -> ObservedProcess:
        return ObservedProcess(
            "worker",
            index,
            running=False,
            reason=reason,
            exit_code=code,
            finished_at=NOW + timedelta(seconds=after_s),
        )

    processes = (
        process(0, Reason.COMPLETED, 0, 0),
        process(1, Reason.NON_ZERO_EXIT, 2, 9),
        process(2, Reason.NON_ZERO_EXIT, 1, 4),
    )
    ended = look(
        job_in(Phase.RUNNING),
        gang_in(GangState.EXITED, Reason.NON_ZERO_EXIT, "x", processes=processes),
    ).status
    assert ended is not None
    assert ended.exit_code == 4


# ---- attempts


def test_a_failed_attempt_is_followed_by_another_after_a_delay() -> None:
    job = job_in(
        Phase.RUNNING,
        fields={"max_retries": 2},
        started_at=NOW,
        exit_code=1,
        signal="SIGKILL",
        stages={"claimed": NOW},
    )
    again = look(job, BAD)
    assert again.status is not None
    assert (again.status.phase, again.status.attempt) == (Phase.RESTARTING, 2)
    assert again.status.not_before == NOW + timedelta(seconds=1)
    assert again.events[0].message == (
        "master-0 exited with code 3; attempt 2 in 1 s (retry 1 of 2); attempt 1 ran for 0s"
    )
    assert (again.status.started_at, again.status.exit_code, again.status.signal) == (
        None,
        None,
        None,
    )
    assert again.status.stages == {}


def test_a_job_says_once_for_each_reason_that_it_waits() -> None:
    job = job_in(Phase.QUEUED)
    waits = [
        (WaitsFor(Reason.QUOTA_EXCEEDED, "2 of 2 are running"), 1),
        (WaitsFor(Reason.QUOTA_EXCEEDED, "3 of 2 are running"), 0),
        (WaitsFor(Reason.INSUFFICIENT_CAPACITY, "memory of this machine"), 1),
        (None, 0),
    ]
    for waits_for, events in waits:
        decision = decide(job, [], NOW, has_slot=False, rules=RULES, waits_for=waits_for)
        assert len(decision.events) == events
        job = replace(job, status=decision.status or job.status)
        again = decide(job, [], NOW, has_slot=False, rules=RULES, waits_for=waits_for)
        assert again.status is None
    assert (job.status.reason, job.status.message) == (Reason.SUBMITTED, "")


def test_an_attempt_waits_for_its_time() -> None:
    job = job_in(Phase.RESTARTING, attempt=2, not_before=NOW + timedelta(seconds=5))
    assert look(job) == Decision(requeue_at=NOW + timedelta(seconds=5))
    started = look(job, after_s=5).status
    assert started is not None
    assert (started.phase, started.attempt, started.not_before) == (Phase.STARTING, 2, None)


@pytest.mark.parametrize(
    "reason", sorted({*NEVER_RETRIED, Reason.OUT_OF_MEMORY} - {Reason.CANCELLED})
)
def test_what_would_only_repeat_is_not_tried_again(reason: Reason) -> None:
    ended = look(
        job_in(Phase.STARTING, fields={"max_retries": 9}), gang_in(GangState.EXITED, reason, "no")
    ).status
    assert ended is not None
    assert (ended.phase, ended.attempt, ended.reason) == (Phase.FAILED, 1, reason)


def test_after_the_last_attempt_it_has_failed() -> None:
    gang = gang_in(GangState.EXITED, Reason.NON_ZERO_EXIT, "again", attempt=3)
    decision = look(
        job_in(Phase.RUNNING, attempt=3, retries_used=2, fields={"max_retries": 2}), gang
    )
    assert decision.events[-1].message == "again (all 2 retries are used)"
    ended = decision.status
    assert ended is not None
    assert (ended.phase, ended.attempt) == (Phase.FAILED, 3)


@pytest.mark.parametrize(
    "phase", [phase for phase in Phase if phase not in (Phase.SAVED, Phase.QUEUED)]
)
@pytest.mark.parametrize("state", LIVE)
def test_nothing_happens_while_an_earlier_attempt_lives(phase: Phase, state: GangState) -> None:
    decision = look(
        job_in(phase, attempt=2), gang_in(state, attempt=1), gang_in(GangState.RUNNING, attempt=2)
    )
    assert decision.status is None
    assert decision.actions == [StopGang(1, RULES.stop_grace_s)]


def test_dead_earlier_attempts_are_no_obstacle() -> None:
    assert look(job_in(Phase.STARTING, attempt=2), BAD).actions == [EnsureGang(2)]


# ---- stopping


@pytest.mark.parametrize("phase", [Phase.SAVED, Phase.QUEUED])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"desired": Desired.STOPPED}, Reason.CANCELLED), ({"deleting": True}, Reason.DELETED)],
)
def test_what_never_started_is_stopped_at_once(
    phase: Phase, fields: dict[str, object], reason: Reason
) -> None:
    stopped = look(job_in(phase, **fields), has_slot=True).status  # type: ignore[arg-type]
    assert stopped is not None
    assert (stopped.phase, stopped.reason) == (Phase.STOPPED, reason)


@pytest.mark.parametrize(
    "phase", [Phase.RESTARTING, Phase.STARTING, Phase.RUNNING, Phase.FINISHING]
)
def test_stopping_is_committed_before_it_is_acted_on(phase: Phase) -> None:
    stopping = look(job_in(phase, desired=Desired.STOPPED), gang_in(GangState.RUNNING))
    assert stopping.status is not None
    assert (stopping.status.phase, stopping.actions) == (Phase.STOPPING, ())


def test_a_stop_that_was_begun_is_not_taken_back() -> None:
    assert look(
        job_in(Phase.STOPPING, desired=Desired.RUN), gang_in(GangState.RUNNING)
    ).actions == [StopGang(1, 8.0, Reason.PAUSED)]


@pytest.mark.parametrize(
    "observed", [[], [gang_in(GangState.STAGING)], [gang_in(GangState.RUNNING)]]
)
def test_a_stop_goes_on_until_every_process_is_gone(observed: Sequence[ObservedGang]) -> None:
    decision = look(job_in(Phase.STOPPING, desired=Desired.STOPPED), *observed)
    assert (decision.status, decision.actions) == (None, [StopGang(1, RULES.stop_grace_s)])
    assert decision.requeue_at is not None


@pytest.mark.parametrize(
    ("fields", "grace_s"), [({}, 8.0), ({"grace_time": "2m"}, 120.0), ({"grace_time": 0}, 0.0)]
)
def test_a_job_is_stopped_with_its_own_grace_time(
    fields: dict[str, object], grace_s: float
) -> None:
    decision = look(
        job_in(Phase.RUNNING, desired=Desired.STOPPED, fields=fields), gang_in(GangState.RUNNING)
    )
    assert decision.events[0].message == f"cancelled; its processes have {grace_s:g} s to end"
    stopping = look(
        job_in(Phase.STOPPING, desired=Desired.STOPPED, fields=fields), gang_in(GangState.RUNNING)
    )
    assert stopping.actions == [StopGang(1, grace_s)]
    stray = look(job_in(Phase.RUNNING, fields=fields), gang_in(GangState.RUNNING, attempt=7))
    assert stray.actions == [StopGang(7, grace_s)]


@pytest.mark.parametrize(
    "gang", [GOOD, BAD, gang_in(GangState.TOMBSTONED), gang_in(GangState.LOST, Reason.NODE_LOST)]
)
def test_a_stopped_job_is_stopped_however_its_processes_ended(gang: ObservedGang) -> None:
    stopped = look(
        job_in(Phase.STOPPING, desired=Desired.STOPPED, fields={"max_retries": 5}), gang
    ).status
    assert stopped is not None
    assert (stopped.phase, stopped.reason) == (Phase.STOPPED, Reason.CANCELLED)


# ---- after the end


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_a_job_at_rest_stays_at_rest(phase: Phase) -> None:
    for observed in ([], [GOOD], [BAD], [gang_in(GangState.TOMBSTONED)]):
        for desired in Desired:
            assert look(job_in(phase, desired=desired), *observed, has_slot=True) == Decision()


@pytest.mark.parametrize("phase", sorted(TERMINAL))
@pytest.mark.parametrize("state", LIVE)
def test_processes_that_outlive_the_end_are_stopped(phase: Phase, state: GangState) -> None:
    assert look(job_in(phase), gang_in(state)).actions == [StopGang(1, 0.0)]
    assert look(job_in(phase, deleting=True), gang_in(state)).actions == [StopGang(1, 0.0)]


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_a_deleted_job_is_forgotten_when_nothing_of_it_lives(phase: Phase) -> None:
    assert look(job_in(phase, deleting=True), GOOD).actions == [Forget()]
    assert look(job_in(phase, deleting=True)).actions == [Forget()]


# ---- all of it


def test_every_look_has_an_answer_that_keeps_the_order_and_the_rule() -> None:
    gangs = [
        [],
        *(
            [gang_in(state, reason, "m", attempt=1)]
            for state in GangState
            for reason in (None, *Reason)
        ),
    ]
    for phase in Phase:
        for desired in Desired:
            for deleting in (False, True):
                job = job_in(phase, desired=desired, deleting=deleting, fields={"max_retries": 1})
                for observed in gangs:
                    for has_slot in (False, True):
                        decision = look(job, *observed, has_slot=has_slot)
                        assert decision.status is None or not decision.actions
                        if decision.status is not None:
                            before, after = job.status, decision.status
                            waits = {before.phase, after.phase} <= WAITING
                            waits = waits or (
                                after.phase is Phase.STARTING
                                and after.reason == Reason.WAITING_FOR_ENGINE
                            )
                            as_before = after.order == before.order
                            assert as_before if waits else after.order > before.order
                            assert decision.events or decision.status.phase is Phase.FINISHING
                        if job.status.phase in ACTIVE and not decision.status:
                            assert decision.actions or decision.requeue_at or observed


def test_notices_about_the_environment_are_said_once_before_the_start() -> None:
    fields = {"notices": ("xrange in task.py:3",)}
    expected = ["EnvironmentNotice", "Started"]
    running = look(job_in(Phase.STARTING), gang_in(GangState.RUNNING, **fields))
    assert [event.reason for event in running.events] == expected
    assert running.events[0].message == "xrange in task.py:3"
    ran = (ObservedProcess("master", 0, running=False, reason=Reason.COMPLETED, started_at=NOW),)
    unseen = look(job_in(Phase.STARTING), replace(GOOD, processes=ran, **fields))
    assert [event.reason for event in unseen.events] == [*expected, "Completed"]
    ended = look(job_in(Phase.RUNNING), replace(GOOD, processes=ran, **fields))
    assert [event.reason for event in ended.events] == ["Completed"]
    again = look(job_in(Phase.STARTING, attempt=2), gang_in(GangState.RUNNING, attempt=2, **fields))
    assert [event.reason for event in again.events] == ["Started"]


@pytest.mark.parametrize(
    ("phase", "gang"), [(Phase.RUNNING, GOOD), (Phase.RUNNING, BAD), (Phase.STOPPING, GOOD)]
)
def test_files_that_go_with_the_job_are_told_when_it_ends(phase: Phase, gang: ObservedGang) -> None:
    job = job_in(phase, desired=Desired.STOPPED) if phase is Phase.STOPPING else job_in(phase)
    ended = look(job, replace(gang, unsaved_files=UnsavedFiles(1, ("/tmp/w.pt",))))
    first = ended.events[0]
    assert (first.reason, first.type) == (Reason.FILES_NOT_KEPT, EventType.WARNING)
    assert "/tmp/w.pt" in first.message


def test_of_a_prepare_command_that_failed_no_task_is_told() -> None:
    prepare = ObservedProcess(
        "master", 0, False, Reason.NON_ZERO_EXIT, "master-0 exited with code 3", 3, started_at=NOW
    )
    why = "the prepare command exited with code 3"
    notice = "Python 2 in trainer/task.py"
    gang = gang_in(
        GangState.EXITED, Reason.PREPARE_FAILED, why, processes=(prepare,), notices=(notice,)
    )
    events = [(event.reason, event.message) for event in look(job_in(Phase.STARTING), gang).events]
    assert events == [(Reason.ENVIRONMENT_NOTICE, notice), (Reason.PREPARE_FAILED, why)]


def test_of_a_prepare_command_that_took_too_much_memory_no_task_is_told() -> None:
    why = "OOMKilled: 64M exceeded by the prepare command"
    prepare = ObservedProcess("master", 0, False, Reason.OUT_OF_MEMORY, "OOMKilled", started_at=NOW)
    gang = gang_in(
        GangState.EXITED,
        Reason.OUT_OF_MEMORY,
        why,
        processes=(prepare,),
        stages={"claimed": NOW, "environment": NOW, "ended": NOW},
    )
    events = [(event.reason, event.message) for event in look(job_in(Phase.STARTING), gang).events]
    assert events == [(Reason.OUT_OF_MEMORY, why)]


@pytest.mark.parametrize(
    ("before", "expected"), [(Phase.STARTING, ["attempt 1 ran on box"]), (Phase.RUNNING, [])]
)
def test_an_attempt_that_finishes_at_the_first_look_has_run(
    before: Phase, expected: list[str]
) -> None:
    gang = replace(gang_in(GangState.FINISHING), node="box")
    events = look(job_in(before), gang).events
    assert [event.message for event in events if event.reason is Reason.STARTED] == expected


def test_nobody_is_told_of_lost_files_who_wanted_none() -> None:
    job = job_in(Phase.RUNNING, fields={"outputs": []})
    ended = look(job, replace(GOOD, unsaved_files=UnsavedFiles(1, ("/tmp/w.pt",))))
    assert [event.reason for event in ended.events] == [Reason.COMPLETED]


def test_files_of_an_attempt_that_is_tried_again_are_not_told_yet() -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 1})
    again = look(job, replace(BAD, unsaved_files=UnsavedFiles(1, ("/tmp/w.pt",))))
    assert [event.reason for event in again.events] == [Reason.RESTARTING]


# ---- pauses


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.RESTARTING])
def test_a_job_of_which_nothing_lives_is_paused_at_once(phase: Phase) -> None:
    paused = look(job_in(phase, attempt=2, desired=Desired.PAUSED, ports=(1,))).status
    assert paused is not None
    assert (paused.phase, paused.attempt, paused.ports) == (Phase.PAUSED, 2, ())


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.FINISHING])
def test_a_job_that_runs_is_stopped_and_then_paused(phase: Phase) -> None:
    job = job_in(phase, desired=Desired.PAUSED, retries_used=1, fields={"max_retries": 2})
    living = gang_in(GangState.RUNNING)
    stopping = look(job, living).status
    assert stopping is not None
    assert stopping.phase is Phase.STOPPING
    job = replace(job, status=stopping)
    assert look(job, living).actions == [StopGang(1, RULES.stop_grace_s, Reason.PAUSED)]
    deleting = replace(job, delete_requested_at=NOW)
    assert look(deleting, living).actions == [StopGang(1, RULES.stop_grace_s, Reason.DELETED)]
    paused = look(job, gang_in(GangState.EXITED, Reason.CANCELLED, "stopped")).status
    assert paused is not None
    assert (paused.phase, paused.attempt, paused.retries_used) == (Phase.PAUSED, 2, 1)
    job = replace(job, status=paused)
    assert look(job) == Decision()
    resumed = replace(
        job, spec=change_workload(job.spec, lambda workload: workload.with_desired(Desired.RUN))
    )
    queued = look(resumed).status
    assert queued is not None
    assert (queued.phase, queued.attempt) == (Phase.QUEUED, 2)


def test_a_job_that_is_resumed_while_it_stops_is_queued() -> None:
    job = job_in(Phase.STOPPING)
    queued = look(job, gang_in(GangState.EXITED, Reason.CANCELLED, "stopped")).status
    assert queued is not None
    assert (queued.phase, queued.attempt) == (Phase.QUEUED, 2)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STOPPING])
def test_a_job_that_ended_well_meanwhile_has_succeeded(phase: Phase) -> None:
    job = job_in(phase, desired=Desired.PAUSED)
    ended = look(job, gang_in(GangState.EXITED, Reason.COMPLETED, "")).status
    assert ended is not None
    assert ended.phase is Phase.SUCCEEDED


def test_a_paused_job_is_cancelled_at_once() -> None:
    ended = look(job_in(Phase.PAUSED, attempt=2, desired=Desired.STOPPED)).status
    assert ended is not None
    assert (ended.phase, ended.message) == (Phase.STOPPED, "cancelled while it was paused")


# ---- restarts of tasks that nobody has seen


@pytest.mark.parametrize("reason", [Reason.COMPLETED, Reason.NON_ZERO_EXIT])
@pytest.mark.parametrize("retries", [0, 1])
def test_restarts_that_nobody_has_seen_are_told_at_the_end(reason: Reason, retries: int) -> None:
    processes = (
        ObservedProcess("worker", 0, running=False, reason=reason),
        ObservedProcess("worker", 1, running=False, reason=reason, restarts=2, last_end="code 3"),
    )
    gang = gang_in(GangState.EXITED, reason, "over", processes=processes)
    job = job_in(Phase.RUNNING, fields={"max_retries": retries})
    ended = look(job, gang)
    messages = [event.message for event in ended.events if event.reason is Reason.TASK_RESTARTED]
    assert messages == ["worker-1 starts again (restart 2 of attempt 1): code 3"]
    saving = saving_outputs(job, ended, NOW)
    assert [event.reason for event in saving.events] == [
        Reason.TASK_RESTARTED,
        Reason.SAVING_OUTPUTS,
    ]
    assert saving.status is not None
    if ended.status is not None and ended.status.phase.terminal:  # told once
        again = look(replace(job, status=saving.status), gang)
        assert Reason.TASK_RESTARTED not in [event.reason for event in again.events]


def test_each_restart_is_told_that_happened_while_nobody_looked() -> None:
    worker = ObservedProcess("worker", 1, running=True, started_at=NOW)
    for number in range(3):
        ended = replace(
            worker,
            running=False,
            reason=Reason.NON_ZERO_EXIT,
            message=f"code {number + 1}",
            finished_at=NOW + timedelta(seconds=number),
        )
        worker = restart_process(ended, NOW + timedelta(seconds=number))
    job = job_in(Phase.RUNNING)
    seen = TaskStatus("worker-1", running=True, restarts=1)
    job = replace(job, status=replace(job.status, tasks=(seen,)))
    events = look(job, gang_in(GangState.RUNNING, processes=(worker,))).events
    assert [event.message for event in events if event.reason is Reason.TASK_RESTARTED] == [
        "worker-1 starts again (restart 2 of attempt 1) after 1s: code 2",
        "worker-1 starts again (restart 3 of attempt 1) after 1s: code 3",
    ]


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.FINISHING, Phase.STOPPING])
@pytest.mark.parametrize("desired", [Desired.RUN, Desired.STOPPED, Desired.PAUSED])
@pytest.mark.parametrize("state", [GangState.RUNNING, GangState.FINISHING, GangState.EXITED])
def test_a_restart_is_told_once_whenever_somebody_looks(
    phase: Phase, desired: Desired, state: GangState
) -> None:
    worker = ObservedProcess("worker", 1, running=True, restarts=1, last_end="code 3")
    gang = gang_in(state, processes=(worker,))
    if state is GangState.EXITED:
        gang = replace(gang, reason=Reason.CANCELLED, message="stopped")
    job, restarts = job_in(phase, desired=desired), 0
    for _ in range(4):
        decision = look(job, gang)
        restarts += sum(event.reason is Reason.TASK_RESTARTED for event in decision.events)
        if decision.status is None or decision.status.attempt > 1:
            break
        job = replace(job, status=decision.status)
    over = state is GangState.EXITED
    leads_to_a_stop = phase is Phase.STOPPING or desired is not Desired.RUN
    assert restarts == int(over or not leads_to_a_stop)


# ---- restarts that somebody asks for


def to_restart(phase: Phase, *, after: int, attempt: int = 1) -> WorkloadRecord:
    job = job_in(phase, attempt=attempt, retries_used=1, fields={"max_retries": 2})
    return replace(job, spec=restarted_after(after)(job.spec))


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.FINISHING])
def test_a_job_that_runs_is_stopped_and_begins_its_next_attempt(phase: Phase) -> None:
    job, living = to_restart(phase, after=1), gang_in(GangState.RUNNING)
    stopping = look(job, living).status
    assert stopping is not None
    assert stopping.phase is Phase.STOPPING
    job = replace(job, status=stopping)
    assert look(job, living).actions == [StopGang(1, RULES.stop_grace_s, Reason.RESTARTING)]
    again = look(job, gang_in(GangState.EXITED, Reason.CANCELLED, "stopped")).status
    assert again is not None
    assert (again.phase, again.attempt, again.retries_used) == (Phase.RESTARTING, 2, 1)
    starting = look(replace(job, status=again)).status
    assert starting is not None
    assert starting.phase is Phase.STARTING
    job = replace(job, status=starting)
    assert look(job, gang_in(GangState.RUNNING, attempt=2)).status.phase is Phase.RUNNING  # type: ignore[union-attr]


def test_a_job_that_has_just_ended_is_not_restarted() -> None:
    ended = look(to_restart(Phase.RUNNING, after=1), GOOD).status
    assert ended is not None
    assert ended.phase is Phase.SUCCEEDED


def test_a_job_that_waits_for_its_next_attempt_begins_it_at_once() -> None:
    later = NOW + timedelta(hours=1)
    for after, starts in ((0, False), (1, True)):
        job = to_restart(Phase.RESTARTING, after=after, attempt=2)
        job = replace(job, status=replace(job.status, not_before=later))
        assert (look(job).status is not None) is starts


def test_a_task_is_started_again_when_somebody_wants_it() -> None:
    job = job_in(Phase.RUNNING, fields={"worker_count": 2, "recipe": "cluster"})
    runs = ObservedProcess("worker", 0, running=True)
    living = gang_in(GangState.RUNNING, processes=(runs, replace(runs, index=1)))
    assert not look(job, living).actions

    def with_restart(attempt: int, task: str, number: int) -> WorkloadRecord:
        requests = (RequestedRestart(attempt, task, number),)
        workload = replace(job.spec.workload, requested_restarts=requests)
        return replace(job, spec=job.spec.with_workload(workload))

    decision = look(with_restart(1, "worker-1", 1), living)
    assert decision.actions == [RestartTask(1, "worker-1", 1, RULES.stop_grace_s)]
    assert decision.requeue_at is not None
    assert not look(with_restart(2, "worker-1", 1), living).actions
    assert not look(with_restart(1, "worker-7", 1), living).actions
    done = replace(runs, index=1, requested_restarts=1, restarts=1, last_end=ON_REQUEST)
    again = gang_in(GangState.RUNNING, processes=(runs, done))
    restart_decision = look(with_restart(1, "worker-1", 1), again)
    assert [event.reason for event in restart_decision.events] == [Reason.TASK_RESTARTED]
    assert restart_decision.events[0].type is EventType.NORMAL
    assert restart_decision.status is not None
    seen = replace(with_restart(1, "worker-1", 1), status=restart_decision.status)
    assert not look(seen, again).actions
    assert look(
        replace(with_restart(1, "worker-1", 2), status=restart_decision.status), again
    ).actions
    over = gang_in(GangState.FINISHING, processes=(runs, done))
    assert not look(seen, over).actions


def test_a_pause_goes_before_a_restart() -> None:
    job = to_restart(Phase.STOPPING, after=1)
    workload = job.spec.workload.with_desired(Desired.PAUSED)
    job = replace(job, spec=job.spec.with_workload(workload))
    paused = look(job, gang_in(GangState.EXITED, Reason.CANCELLED, "stopped")).status
    assert paused is not None
    assert paused.phase is Phase.PAUSED


def test_a_job_of_several_tasks_tells_which_one_ran_out_of_memory() -> None:
    gang = gang_in(GangState.EXITED, Reason.OUT_OF_MEMORY, "OOMKilled: 60M exceeded")
    ends = [Reason.CANCELLED, Reason.OUT_OF_MEMORY]
    tasks = tuple(
        ObservedProcess("worker", index, False, reason, finished_at=NOW - timedelta(seconds=index))
        for index, reason in enumerate(ends)
    )
    failed = look(job_in(Phase.RUNNING), replace(gang, processes=tasks)).status
    assert failed is not None
    assert failed.message == "worker-1: OOMKilled: 60M exceeded"


# ---- progress


def test_the_third_end_without_progress_is_told_as_such() -> None:
    failed = ObservedProcess("master", 0, running=False, reason=Reason.NON_ZERO_EXIT, exit_code=7)
    bad = gang_in(GangState.EXITED, Reason.NON_ZERO_EXIT, "exited with code 7", processes=(failed,))
    job = job_in(Phase.RUNNING, fields={"max_retries": 9})
    for attempt in (1, 2):
        again = look(job, replace(bad, attempt=attempt)).status
        assert again is not None
        assert (again.phase, again.last_end.times) == (Phase.RESTARTING, attempt)
        running = replace(again, phase=Phase.RUNNING)
        job = replace(job, status=TRAIN_JOB.decode_status(codec.encode(running)))
    last = look(job, replace(bad, attempt=3))
    assert last.status is not None
    assert (last.status.phase, last.status.reason) == (Phase.FAILED, Reason.NO_PROGRESS)
    assert last.status.exit_code == 7
    assert last.status.message == (
        "NoProgress: the same end 3 times without a new checkpoint or step: exited with code 7"
    )
    further = replace(bad, attempt=3, milestone=Milestone(1))
    assert look(job, further).status.phase is Phase.RESTARTING


def test_a_status_of_the_version_before_has_no_last_end() -> None:
    document = codec.encode(WorkloadStatus(retries_used=2))
    del document["last_end"]
    assert TRAIN_JOB.decode_status(document).last_end == NO_END


def test_a_status_of_the_version_before_has_tasks_whose_last_end_is_a_sentence() -> None:
    document = codec.encode(WorkloadStatus(tasks=(TaskStatus("worker-1", last_end="code 3"),)))
    for name in ("last_reason", "last_exit_code", "last_signal"):
        del document["tasks"][0][name]
    (task,) = TRAIN_JOB.decode_status(document).tasks
    assert (task.last_end, task.last_reason, task.last_exit_code) == ("code 3", "", None)


def test_the_status_of_a_task_says_how_it_ended_before_its_last_restart() -> None:
    ended = ObservedProcess("worker", 1, running=False, reason=Reason.SIGNALED, signal="SIGSEGV")
    worker = restart_process(ended, NOW)
    status = look(job_in(Phase.STARTING), gang_in(GangState.RUNNING, processes=(worker,))).status
    assert status is not None
    (task,) = status.tasks
    assert (task.reason, task.signal) == ("", None)
    assert (task.last_reason, task.last_exit_code, task.last_signal) == (
        "Signaled",
        None,
        "SIGSEGV",
    )


def test_what_all_tasks_used_is_told_together() -> None:
    used = [Usage(1.5, 10, 40, 2), Usage(0.25, 20, 30, 1)]
    tasks = tuple(
        ObservedProcess("worker", index, running=False, reason=Reason.COMPLETED, usage=one)
        for index, one in enumerate(used)
    )
    ended = look(job_in(Phase.RUNNING), replace(GOOD, processes=tasks)).status
    assert ended is not None
    assert ended.usage == Usage(1.75, 20, 40, 3)

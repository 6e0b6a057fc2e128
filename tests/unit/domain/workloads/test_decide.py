"""The decision at each look: for every phase, everything that may be seen, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess, UnsavedFiles
from cloud_ml.domain.records import Decision, EventType
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, StopGang
from cloud_ml.domain.workloads.decide import (
    Rules,
    WaitsFor,
    WorkloadDecision,
    WorkloadRecord,
    decide,
)
from cloud_ml.domain.workloads.phases import ACTIVE, TERMINAL, Phase
from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.spec import Desired
from support.jobs import NOW, gang_in, job_in

RULES = Rules(stop_grace_s=8.0, start_timeout_s=100.0)
GOOD = gang_in(GangState.EXITED, Reason.COMPLETED, "the job completed")
BAD = gang_in(GangState.EXITED, Reason.NON_ZERO_EXIT, "master-0 exited with code 3")
LIVE = [GangState.STAGING, GangState.RUNNING, GangState.FINISHING]


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


@pytest.mark.parametrize(("at_s", "told_s"), [(-50, 5), (500, 100)])
def test_a_clock_that_was_set_makes_no_end_before_the_start_and_none_in_the_future(
    at_s: float, told_s: float
) -> None:
    job = job_in(Phase.RUNNING, started_at=NOW + timedelta(seconds=5))
    ended = look(job, ended_after(at_s), after_s=100).status
    assert ended is not None
    assert ended.finished_at == NOW + timedelta(seconds=told_s)


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
    assert again.events[0].message == "master-0 exited with code 3; attempt 2 of 3 in 1 s"
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
    ended = look(job_in(Phase.RUNNING, attempt=3, fields={"max_retries": 2}), gang).status
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
    ("wish", "reason"),
    [({"desired": Desired.STOPPED}, Reason.CANCELLED), ({"deleting": True}, Reason.DELETED)],
)
def test_what_never_started_is_stopped_at_once(
    phase: Phase, wish: dict[str, object], reason: Reason
) -> None:
    stopped = look(job_in(phase, **wish), has_slot=True).status  # type: ignore[arg-type]
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
    ).actions == [StopGang(1, 8.0)]


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
    asked = look(
        job_in(Phase.RUNNING, desired=Desired.STOPPED, fields=fields), gang_in(GangState.RUNNING)
    )
    assert asked.events[0].message == f"cancelled; its processes have {grace_s:g} s to end"
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
                            assert decision.status.order > job.status.order
                            assert decision.events or decision.status.phase is Phase.FINISHING
                        if job.status.phase in ACTIVE and not decision.status:
                            assert decision.actions or decision.requeue_at or observed


def test_notices_about_the_environment_are_said_once_before_the_start() -> None:
    told = {"notices": ("xrange in task.py:3",)}
    expected = ["EnvironmentNotice", "Started"]
    running = look(job_in(Phase.STARTING), gang_in(GangState.RUNNING, **told))
    assert [event.reason for event in running.events] == expected
    assert running.events[0].message == "xrange in task.py:3"
    ran = (ObservedProcess("master", 0, running=False, reason=Reason.COMPLETED, started_at=NOW),)
    unseen = look(job_in(Phase.STARTING), replace(GOOD, processes=ran, **told))
    assert [event.reason for event in unseen.events] == [*expected, "Completed"]
    ended = look(job_in(Phase.RUNNING), replace(GOOD, processes=ran, **told))
    assert [event.reason for event in ended.events] == ["Completed"]
    again = look(job_in(Phase.STARTING, attempt=2), gang_in(GangState.RUNNING, attempt=2, **told))
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


def test_nobody_is_told_of_lost_files_who_wanted_none() -> None:
    job = job_in(Phase.RUNNING, fields={"outputs": []})
    ended = look(job, replace(GOOD, unsaved_files=UnsavedFiles(1, ("/tmp/w.pt",))))
    assert [event.reason for event in ended.events] == [Reason.COMPLETED]


def test_files_of_an_attempt_that_is_tried_again_are_not_told_yet() -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 1})
    again = look(job, replace(BAD, unsaved_files=UnsavedFiles(1, ("/tmp/w.pt",))))
    assert [event.reason for event in again.events] == [Reason.RESTARTING]

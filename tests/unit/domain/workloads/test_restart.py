"""When an attempt that ended is followed by another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.workloads.exits import ExitAction, ExitRule, ExitRules, RestartPolicy, code_of
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.progress import NO_END, Milestone
from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.restart import AttemptEnd, NextAttempt, next_attempt
from cloud_ml.domain.workloads.spec import Program, RetryPolicy, Role, WorkloadSpec
from support.jobs import NOW

POLICY = RetryPolicy(max_retries=3, first_delay_s=2.0, factor=3.0, longest_delay_s=10.0)
JOB = WorkloadSpec(Program("task", "fds://b/t.zip"), (Role("master"),), retry=POLICY)
SERVICE = replace(JOB, serves=True)
HOPELESS = {Reason.OUT_OF_MEMORY, Reason.TIME_LIMIT, Reason.PREPARE_FAILED}
CRASH = AttemptEnd(Reason.NON_ZERO_EXIT, "master", 1, ran_s=5)


def following(
    end: AttemptEnd = CRASH,
    *,
    used: int = 0,
    failures: int = 0,
    conflicts: int = 0,
    rules: tuple[ExitRule, ...] = (),
    policy: RestartPolicy = RestartPolicy.ON_FAILURE,
    job: WorkloadSpec = JOB,
) -> NextAttempt:
    retry = replace(job.retry, exits=ExitRules(policy, rules))
    status = WorkloadStatus(retries_used=used, failures=failures, port_conflicts=conflicts)
    return next_attempt(replace(job, retry=retry), status, end, NOW)


@pytest.mark.parametrize(("used", "delay_s"), [(0, 2), (1, 6), (2, 10), (3, None), (100, None)])
def test_delays_grow_to_a_bound_and_retries_end(used: int, delay_s: float | None) -> None:
    found = following(used=used, failures=used)
    assert found.at == (None if delay_s is None else NOW + timedelta(seconds=delay_s))
    if delay_s is not None:
        assert (found.retries_used, found.failures) == (used + 1, used + 1)
        assert found.why == f"retry {used + 1} of 3"
    else:
        assert found.why == f"all {used} retries are used"


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.COMPLETED])
def test_what_another_attempt_would_only_meet_again_is_not_tried(reason: Reason) -> None:
    repeats = reason in NEVER_RETRIED or reason in HOPELESS
    assert (following(AttemptEnd(reason)).at is None) == repeats


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.COMPLETED])
def test_a_service_is_tried_again_whatever_its_calls_took(reason: Reason) -> None:
    assert (following(AttemptEnd(reason), job=SERVICE).at is None) == (reason in NEVER_RETRIED)


@pytest.mark.parametrize("reason", [Reason.NODE_LOST, Reason.SUPERVISOR_LOST])
def test_what_the_platform_lost_costs_no_retry_unless_it_goes_on_so(reason: Reason) -> None:
    free = following(AttemptEnd(reason), used=1, failures=9)
    assert (free.retries_used, free.failures, free.why) == (1, 10, "it costs no retry")
    assert following(AttemptEnd(reason), used=1, failures=10).retries_used == 2


@pytest.mark.parametrize("reason", [Reason.NODE_LOST, Reason.SUPERVISOR_LOST])
def test_what_costs_nothing_follows_also_if_all_retries_are_used(reason: Reason) -> None:
    found = following(AttemptEnd(reason), used=3, failures=3)
    assert (found.retries_used, found.why) == (3, "it costs no retry")
    assert found.at is not None


@pytest.mark.parametrize("policy", list(RestartPolicy))
@pytest.mark.parametrize("retries", [0, 3])
def test_ports_that_were_taken_cost_nothing_under_every_policy(
    policy: RestartPolicy, retries: int
) -> None:
    retry = RetryPolicy(max_retries=retries, exits=ExitRules(policy))
    job = replace(JOB, retry=retry)
    found = following(AttemptEnd(Reason.PORT_TAKEN), used=retries, conflicts=9, job=job)
    assert (found.retries_used, found.port_conflicts) == (retries, 10)
    assert (found.failures, found.why) == (0, "it costs no retry")
    assert found.at is not None
    late = following(AttemptEnd(Reason.PORT_TAKEN), used=retries, conflicts=10, job=job)
    assert late.at is None


@pytest.mark.parametrize("policy", list(RestartPolicy))
@pytest.mark.parametrize("retries", [0, 3])
def test_a_place_that_was_given_to_others_costs_nothing_under_every_policy(
    policy: RestartPolicy, retries: int
) -> None:
    retry = RetryPolicy(max_retries=retries, exits=ExitRules(policy))
    job = replace(JOB, retry=retry)
    found = following(AttemptEnd(Reason.PREEMPTED), used=retries, failures=50, job=job)
    assert (found.retries_used, found.failures, found.why) == (retries, 50, "it costs no retry")
    assert found.at == NOW + timedelta(seconds=1), "and does not wait longer from time to time"


def test_ports_that_are_taken_for_good_cost_a_retry_each() -> None:
    late = following(AttemptEnd(Reason.PORT_TAKEN), used=1, conflicts=10)
    assert (late.retries_used, late.port_conflicts) == (2, 11)


def test_ports_that_were_taken_do_not_delay_what_follows_a_failure() -> None:
    taken = following(AttemptEnd(Reason.PORT_TAKEN), failures=1, conflicts=1)
    assert (taken.failures, taken.at) == (1, NOW + timedelta(seconds=6))
    failed = following(failures=1, used=1, conflicts=5)
    assert (failed.failures, failed.port_conflicts) == (2, 0)
    assert failed.at == NOW + timedelta(seconds=6)
    first = following(AttemptEnd(Reason.PORT_TAKEN), failures=7)
    assert first.at == NOW + timedelta(seconds=2)


def test_without_retries_there_is_one_attempt() -> None:
    once = replace(JOB, retry=RetryPolicy())
    for reason in (Reason.NODE_LOST, Reason.NON_ZERO_EXIT):
        assert following(AttemptEnd(reason), job=once).at is None


def test_after_a_long_run_with_progress_the_budget_is_whole_again() -> None:
    long = replace(CRASH, ran_s=3600, milestone=Milestone(step=9))
    found = following(long, used=3, failures=7)
    assert (found.retries_used, found.failures) == (1, 1)
    assert found.at == NOW + timedelta(seconds=2)
    assert following(replace(long, ran_s=3599), used=3).at is None


def test_a_long_run_without_progress_makes_the_delay_short_and_gives_no_retry_back() -> None:
    long = replace(CRASH, ran_s=3600)
    assert following(long, used=3).at is None
    found = following(long, used=1, failures=7)
    assert (found.retries_used, found.failures) == (2, 1)
    assert following(long, used=3, job=SERVICE).retries_used == 1, "that answers calls"


def test_the_budget_of_single_tasks_travels_and_is_whole_again_with_that_of_retries() -> None:
    status = WorkloadStatus(retries_used=1, task_restarts_used=4)

    def used(end: AttemptEnd) -> int:
        return next_attempt(JOB, status, end, NOW).task_restarts_used

    failed = replace(CRASH, task_restarts=3)
    assert used(failed) == 7
    assert used(replace(failed, reason=Reason.SUPERVISOR_LOST)) == 7
    assert used(replace(failed, reason=Reason.PORT_TAKEN)) == 7
    assert used(replace(failed, ran_s=3600)) == 7
    assert used(replace(failed, ran_s=3600, milestone=Milestone(step=9))) == 0


@pytest.mark.parametrize(
    ("code", "again"),
    [(1, False), (128, False), (134, False), (139, False), (130, True), (137, True), (143, True)],
)
def test_exit_codes_of_the_program_itself_are_final(code: int, *, again: bool) -> None:
    end = replace(CRASH, code=code)
    assert (following(end, policy=RestartPolicy.EXIT_CODE).at is not None) == again
    assert following(end).at is not None


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (RestartPolicy.NEVER, False),
        (RestartPolicy.ON_FAILURE, True),
        (RestartPolicy.EXIT_CODE, True),
        (RestartPolicy.ALWAYS, True),
    ],
)
def test_what_hung_starts_again_although_it_was_aborted(
    policy: RestartPolicy, *, again: bool
) -> None:
    end = AttemptEnd(Reason.HUNG, "master", code_of(Reason.HUNG, None, "SIGKILL"))
    assert end.code == 134
    found = following(end, policy=policy)
    assert (found.at is not None) == again
    if again:
        assert found.retries_used == 1
    rule = ExitRule(ExitAction.FAIL, (134,))
    assert following(end, rules=(rule,)).at is None


@pytest.mark.parametrize(
    ("policy", "again"), [(RestartPolicy.ALWAYS, True), (RestartPolicy.ON_FAILURE, False)]
)
def test_only_always_starts_again_after_a_good_end(policy: RestartPolicy, *, again: bool) -> None:
    found = following(AttemptEnd(Reason.COMPLETED, ran_s=5), used=3, failures=2, policy=policy)
    assert (found.at is not None) == again
    if again:
        assert (found.retries_used, found.failures) == (0, 3)


def test_a_good_end_after_a_minute_is_followed_at_once() -> None:
    found = following(
        AttemptEnd(Reason.COMPLETED, ran_s=60), failures=9, policy=RestartPolicy.ALWAYS
    )
    assert found.at == NOW + timedelta(seconds=2)


@pytest.mark.parametrize("ran_s", [5, 7200])
def test_a_good_end_gives_back_all_retries_and_restarts_of_tasks(ran_s: float) -> None:
    """Otherwise a job that runs round after round fails for what went wrong weeks ago."""
    always = replace(JOB, retry=replace(POLICY, exits=ExitRules(RestartPolicy.ALWAYS)))
    used = WorkloadStatus(retries_used=3, failures=3, task_restarts_used=9)
    good = AttemptEnd(Reason.COMPLETED, "master", 0, ran_s=ran_s, task_restarts=1)
    found = next_attempt(always, used, good, NOW)
    assert (found.retries_used, found.task_restarts_used) == (0, 0)
    status = WorkloadStatus(retries_used=found.retries_used, failures=found.failures)
    assert next_attempt(always, status, CRASH, NOW).why == "retry 1 of 3"


def test_short_good_ends_in_turn_with_failures_have_growing_delays() -> None:
    always = replace(JOB, retry=replace(POLICY, exits=ExitRules(RestartPolicy.ALWAYS)))
    status, delays = WorkloadStatus(), []
    for _ in range(3):
        for end in (AttemptEnd(Reason.COMPLETED, "master", 0, ran_s=1), CRASH):
            found = next_attempt(always, status, end, NOW)
            assert found.at is not None
            delays.append(found.at - NOW)
            status = replace(status, retries_used=found.retries_used, failures=found.failures)
    assert delays == sorted(delays)
    assert delays[0] < delays[-1] == timedelta(seconds=POLICY.longest_delay_s)


def test_never_means_never() -> None:
    assert following(policy=RestartPolicy.NEVER).at is None


def test_the_first_rule_that_fits_counts() -> None:
    rules = (
        ExitRule(ExitAction.FAIL, (1,), ("worker",)),
        ExitRule(ExitAction.FREE, (1, 2)),
        ExitRule(ExitAction.FAIL, (1,)),
        ExitRule(ExitAction.RESTART_GANG, (137,)),
    )
    worker = following(replace(CRASH, role="worker"), rules=rules)
    assert (worker.at, worker.why) == (None, "restart.rules: 1 of worker means fail")
    master = following(rules=rules, used=3)
    assert (master.retries_used, master.why) == (3, "it costs no retry")
    killed = AttemptEnd(Reason.OUT_OF_MEMORY, "master", 137)
    assert following(killed, rules=rules, policy=RestartPolicy.NEVER).at is not None
    assert following(AttemptEnd(Reason.TIME_LIMIT, "master", 137), rules=rules).at is None


def test_a_rule_may_look_for_a_text_in_the_log() -> None:
    rules = (
        ExitRule(ExitAction.FAIL, (1,), log="no such file"),
        ExitRule(ExitAction.FREE, log="CUDA error"),
    )
    lost = following(replace(CRASH, found_texts=("no such file",)), rules=rules)
    why = "restart.rules: 1 of any role with 'no such file' in its log means fail"
    assert (lost.at, lost.why) == (None, why)
    assert (
        following(replace(CRASH, found_texts=("CUDA error",)), rules=rules, used=3).at is not None
    )
    assert following(CRASH, rules=rules).why == "retry 1 of 3"
    assert ExitRules(rules=rules).log_texts == ("no such file", "CUDA error")


def test_the_hundredth_delay_is_still_a_number() -> None:
    assert RetryPolicy(max_retries=100).delay_s(100) == 300.0


def ends_of(*ends: AttemptEnd, job: WorkloadSpec = JOB, rules: tuple[ExitRule, ...] = ()) -> str:
    """What follows from each end, a letter for each: again, free, no progress, or over."""
    job = replace(job, retry=replace(job.retry, exits=ExitRules(rules=rules)))
    status, letters = WorkloadStatus(), ""
    for end in ends:
        found = next_attempt(job, status, end, NOW)
        free = found.why == "it costs no retry"
        again = "f" if free else "a"
        letters += again if found.at is not None else "n" if found.no_progress else "o"
        status = replace(
            status,
            retries_used=found.retries_used,
            failures=found.failures,
            last_end=found.last_end,
        )
    return letters


MANY = replace(JOB, retry=replace(POLICY, max_retries=99))
LOST = AttemptEnd(Reason.NODE_LOST, "master")


def at(step: int, end: AttemptEnd = CRASH) -> AttemptEnd:
    return replace(end, milestone=Milestone(step))


@pytest.mark.parametrize(
    ("ends", "letters"),
    [
        ([CRASH] * 3, "aan"),
        ([replace(CRASH, ran_s=9999)] * 3, "aan"),
        ([CRASH, replace(CRASH, code=2), CRASH, CRASH, CRASH], "aaaan"),
        ([CRASH, replace(CRASH, role="worker"), CRASH, CRASH, CRASH], "aaaan"),
        ([CRASH, LOST, CRASH, LOST, LOST, CRASH], "afaffn"),
        ([LOST] * 5, "fffff"),
        ([AttemptEnd(Reason.HUNG, "master", 134)] * 3, "aan"),
        ([at(1), at(2), at(3), at(4), at(5)], "aaaaa"),
        ([at(5), at(5), at(5)], "aan"),
        ([at(5), at(3), at(4)], "aan"),
        ([at(5), at(5), at(6), at(6), at(6)], "aaaan"),
        ([at(5), LOST, at(6), at(6), at(6)], "afaan"),
        ([AttemptEnd(Reason.START_FAILED)] * 5, "aaaaa"),
    ],
)
def test_the_third_same_end_without_progress_is_the_last(
    ends: list[AttemptEnd], letters: str
) -> None:
    assert ends_of(*ends, job=MANY) == letters


def test_with_three_retries_that_is_one_attempt_earlier() -> None:
    assert ends_of(*[CRASH] * 3) == "aan"
    two = replace(JOB, retry=replace(POLICY, max_retries=2))
    assert ends_of(*[CRASH] * 3, job=two) == "aao"


def test_rules_of_the_user_and_services_are_exempt() -> None:
    again = ExitRule(ExitAction.RESTART_GANG, (1,))
    assert ends_of(*[CRASH] * 5, job=MANY, rules=(again,)) == "aaaaa"
    assert ends_of(*[CRASH] * 5, job=replace(MANY, serves=True)) == "aaaaa"


def test_a_good_end_is_progress() -> None:
    always = replace(MANY, retry=replace(MANY.retry, exits=ExitRules(RestartPolicy.ALWAYS)))
    status = WorkloadStatus(last_end=NO_END.followed_by("master", "NonZeroExit", 1, Milestone(5)))
    found = next_attempt(always, status, AttemptEnd(Reason.COMPLETED, "master", 0), NOW)
    assert found.last_end == NO_END

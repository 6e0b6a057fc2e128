"""A release that cannot be served has failed: it holds nothing, and what answered before goes
on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.domain.services.releases import change_fields, redeploy, retry_release
from cloud_ml.domain.services.status import FailedRelease, ServicePhase
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired
from support.service_world import World, running, service_of

JUNK = "version 1: it is junk"


def cannot_load(world: World, release: int) -> None:
    """Replicas of a release run, and say that they do not try to load their model again."""
    for number, each in list(world.replicas.items()):
        if each.template == release and not each.leaving:
            world.replicas[number] = replace(
                each, phase=Phase.RUNNING, load_failed=True, message=JUNK
            )


def rounds(world: World, release: int) -> None:
    """Until nothing changes, while replicas of a release cannot load their model."""
    for _ in range(30):
        world.settle()
        cannot_load(world, release)
        world.answer(lambda each: each.template != release)
    world.settle()


def test_a_service_of_which_nothing_ever_answered_has_failed_and_holds_no_replica() -> None:
    world = World(service_of(2))
    rounds(world, 1)
    assert (world.status.phase, world.status.reason, world.status.message) == (
        ServicePhase.FAILED, Reason.MODEL_LOAD_FAILED, JUNK,
    )  # fmt: skip
    assert world.replicas == {}
    assert world.status.wishes == ()
    assert len(world.made) == 2, "no further replica was made"


def test_an_update_that_fails_leaves_what_answers_and_only_its_release_has_failed() -> None:
    world = running(2)
    world.change(model_uri="fds://bucket/junk")
    rounds(world, 2)
    assert (world.status.phase, world.ready()) == (ServicePhase.RUNNING, 2)
    assert world.status.failed == (FailedRelease(2, Reason.MODEL_LOAD_FAILED, JUNK),)
    assert {each.template for each in world.replicas.values()} == {1}
    assert set(world.status.answering) == set(world.replicas)


def test_a_replica_of_the_last_good_release_is_made_again_after_an_update_has_failed() -> None:
    world = running(2)
    world.change(model_uri="fds://bucket/junk")
    rounds(world, 2)
    number = min(world.replicas)
    world.replicas[number] = replace(world.replicas[number], phase=Phase.SUCCEEDED, ready=False)
    rounds(world, 2)
    assert world.ready() == 2
    assert number not in world.replicas
    world.change(replicas=3)
    rounds(world, 2)
    assert world.ready() == 3
    assert world.record.spec.made_of(1).submitted.model_uri == "fds://bucket/m"


def test_the_service_stays_up_while_an_old_replica_is_away_after_an_update_has_failed() -> None:
    world = running(1)
    world.change(model_uri="fds://bucket/junk")
    rounds(world, 2)
    (number,) = world.replicas
    world.replicas[number] = replace(world.replicas[number], phase=Phase.RESTARTING, ready=False)
    world.settle()
    assert world.status.phase is ServicePhase.STARTING
    rounds(world, 2)
    assert world.status.phase is ServicePhase.RUNNING


def test_a_canary_that_fails_holds_no_replica_and_changes_nothing_about_the_service() -> None:
    world = running(2)
    spec = change_fields(
        world.record.spec, {"model_uri": "fds://bucket/junk"}, 50, served=1, keep=3
    )
    world.record = replace(world.record, spec=spec)
    rounds(world, 2)
    assert world.status.candidate is not None
    assert (world.status.candidate.phase, world.status.candidate.message) == (
        ServicePhase.FAILED,
        JUNK,
    )
    assert (world.status.phase, world.status.message, world.ready()) == (
        ServicePhase.RUNNING,
        "",
        2,
    )
    assert {each.template for each in world.replicas.values()} == {1}


@pytest.mark.parametrize(
    ("reason", "attempt", "failed"),
    [
        (Reason.NON_ZERO_EXIT, 4, True),
        (Reason.SIGNALED, 4, True),
        (Reason.OUT_OF_MEMORY, 4, True),
        (Reason.PREPARE_FAILED, 4, True),
        (Reason.SECRET_NOT_FOUND, 4, True),
        (Reason.SECRET_UNREADABLE, 9, False),
        (Reason.NON_ZERO_EXIT, 3, False),
        (Reason.NODE_LOST, 9, False),
        (Reason.SUPERVISOR_LOST, 9, False),
    ],
)
def test_a_replica_that_crashes_at_each_of_its_tries_fails_its_release(
    reason: Reason, attempt: int, *, failed: bool
) -> None:
    world = World(service_of(1))
    world.settle()
    (number,) = world.replicas
    crashed = replace(
        world.replicas[number],
        phase=Phase.RESTARTING,
        attempt=attempt,
        reason=reason,
        message="it died",
    )
    world.replicas[number] = crashed
    world.settle()
    assert (world.status.phase is ServicePhase.FAILED) is failed
    assert world.status.message == (
        "a replica crashed at each of 3 tries: it died" if failed else "it died"
    )


def test_what_has_answered_once_is_started_again_without_an_end() -> None:
    world = running(1)
    (number,) = world.replicas
    crashed = replace(
        world.replicas[number],
        phase=Phase.RESTARTING,
        attempt=99,
        reason=Reason.SIGNALED,
        message="died",
        ready=False,
    )
    world.replicas[number] = crashed
    world.settle()
    assert world.status.phase is ServicePhase.STARTING
    cannot_load(world, 1)
    world.settle()
    assert (world.status.phase, world.status.message) == (ServicePhase.DEGRADED, JUNK)
    assert world.status.failed == ()
    assert world.status.given_up == (number,)


def test_replicas_that_answer_or_are_tried_again_have_not_given_up() -> None:
    world = running(2)
    first = min(world.replicas)
    world.replicas[first] = replace(
        world.replicas[first], load_failed=True, ready=False, message=JUNK
    )
    world.settle()
    assert (world.status.phase, world.status.given_up) == (ServicePhase.DEGRADED, (first,))
    world.replicas[first] = replace(world.replicas[first], load_failed=False)
    world.settle()
    assert (world.status.phase, world.status.given_up) == (ServicePhase.DEGRADED, ())
    world.replicas[first] = replace(world.replicas[first], ready=True, message="")
    world.settle()
    assert world.status.phase is ServicePhase.RUNNING


def test_a_failed_service_that_is_deployed_again_has_a_new_release_and_answers() -> None:
    world = World(service_of(1))
    rounds(world, 1)
    spec = redeploy(world.record.spec, service_of(1, model_args="--x=1"), Desired.RUN)
    world.record = replace(world.record, spec=spec)
    world.settle()
    assert world.status.phase is ServicePhase.STARTING
    world.run()
    assert (world.status.phase, world.status.serving_template) == (ServicePhase.RUNNING, 2)


def test_a_failed_release_is_tried_again_when_it_is_stopped_and_started_or_asked_for_again() -> (
    None
):
    world = World(service_of(1))
    rounds(world, 1)
    world.want(Desired.STOPPED)
    world.run()
    assert (world.status.phase, world.status.failed) == (ServicePhase.STOPPED, ())
    world.want(Desired.RUN)
    rounds(world, 1)
    assert world.status.phase is ServicePhase.FAILED
    spec = retry_release(world.record.spec, 1)
    assert retry_release(spec, 1) == spec, "once"
    world.record = replace(world.record, spec=spec)
    world.run()
    assert world.status.phase is ServicePhase.RUNNING

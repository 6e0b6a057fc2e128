"""Roll-outs of a service that fills its organisation's quota."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.services.decide import decide
from cloud_ml.domain.services.status import SeenReplica, ServicePhase
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from support.service_world import World, service_of

FULL = "the quota of memory for model services: 2G of 2G are used, the replica asks for 1G"


class FullWorld(World):
    """Replicas beyond ``room`` wait for the quota; ``answered`` holds how many answered after
    each round.
    """

    def __init__(self, count: int, room: int) -> None:
        super().__init__(service_of(count))
        self.room = room
        self.quota_wait_s = 10.0

    def round(self, starts: Callable[[SeenReplica], bool] = lambda _: True) -> None:
        """Everybody moves once, and eleven seconds pass."""
        self.settle()
        self.fill()
        self.answer(lambda each: each.phase is Phase.STARTING and starts(each))
        self.now += timedelta(seconds=11)

    def begun(self) -> FullWorld:
        """With every replica answering."""
        for _ in range(3):
            self.round()
        assert self.status.phase is ServicePhase.RUNNING
        return self

    def fill(self) -> None:
        live = [each for each in self.replicas.values() if not each.phase.terminal]
        active = sum(each.phase is not Phase.QUEUED for each in live)
        for number, each in sorted(self.replicas.items()):
            if each.phase is not Phase.QUEUED or each.leaving:
                continue
            if active < self.room:
                active += 1
                self.replicas[number] = replace(each, phase=Phase.STARTING, reason="", message="")
            else:
                reason = (Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_CAPACITY)[number % 2]
                self.replicas[number] = replace(each, reason=reason, message=FULL)


def _rolled(count: int, room: int) -> tuple[FullWorld, list[int]]:
    """A change of a service, and how many answered after each step of it."""
    world = FullWorld(count, room).begun()
    world.change(environment={"A": "b"})
    answered = []
    for _ in range(60):
        world.round()
        answered.append(world.ready())
    return world, answered


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_service_that_fills_its_quota_is_replaced_in_place(count: int) -> None:
    world, answered = _rolled(count, room=count)
    assert world.status.phase is ServicePhase.RUNNING
    assert world.ready() == count
    assert {each.template for each in world.replicas.values()} == {world.record.spec.template}
    assert min(answered) == max(0, count - 1), "one at a time"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_with_room_for_one_more_as_many_answer_as_before(count: int) -> None:
    world, answered = _rolled(count, room=count + 1)
    assert {each.template for each in world.replicas.values()} == {world.record.spec.template}
    assert min(answered) == count


def test_it_waits_a_while_for_room_and_says_what_it_does() -> None:
    world = FullWorld(2, 2).begun()
    world.change(environment={"A": "b"})
    world.round()
    world.settle()
    began = world.now
    assert world.status.blocked_since == began
    assert (world.status.phase, world.status.message) == (ServicePhase.RUNNING, FULL)
    seen = list(world.replicas.values())
    early = decide(world.record, seen, began + timedelta(seconds=9), quota_wait_s=10)
    assert early.status is None
    assert early.requeue_at == began + timedelta(seconds=10)
    late = decide(world.record, seen, began + timedelta(seconds=10), quota_wait_s=10)
    assert late.status is not None
    assert {replica.number for replica in late.status.wishes} == {2, 3}
    (event,) = [event for event in late.events if event.reason == Reason.REPLACED_IN_PLACE]
    assert "replica 1 is replaced in place by replica 3" in event.message
    assert "at most 1 of 2 answer meanwhile" in event.message
    assert FULL in event.message


def test_a_new_replica_that_cannot_start_takes_no_more_old_ones_with_it() -> None:
    world = FullWorld(3, 3).begun()
    world.change(environment={"A": "b"})
    for _ in range(20):
        world.round(lambda each: each.template == 1)
        for number, each in list(world.replicas.items()):
            if each.template == 2 and each.phase is Phase.STARTING:
                world.replicas[number] = replace(
                    each, phase=Phase.FAILED, reason=Reason.MODEL_NOT_FOUND
                )
    assert world.ready() == 3, "the one that made room is made again of the release that answers"

"""What follows from a look at a service: simulated with replicas that start, fail and end as
they like.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired
from support.service_world import World, running, service_of


def test_replicas_come_and_go_with_their_number() -> None:
    world = running(2)
    world.change(replicas=4)
    world.run()
    assert world.ready() == 4
    world.change(replicas=1)
    world.run()
    assert world.ready() == 1
    assert world.record.spec.template == 1, "a number makes no new template"


def test_a_change_is_rolled_out_and_never_fewer_answer() -> None:
    world = running(3)
    world.change(memory_limit="500M")
    for _ in range(50):
        world.settle()
        assert world.ready() >= 3
        assert len(world.replicas) <= 5, "one more than wanted, and one that is going"
        world.answer()
    assert {each.template for each in world.replicas.values()} == {2}
    assert world.status.phase is ServicePhase.RUNNING


def test_a_change_that_cannot_start_leaves_the_old_ones_answering_and_is_not_tried_for_ever() -> (
    None
):
    world = running(2)
    world.change(framework="tensorflow")
    for _ in range(20):
        world.settle()
        for number, each in world.replicas.items():
            if each.template == 2:
                world.replicas[number] = replace(
                    each,
                    phase=Phase.FAILED,
                    reason=Reason.ENVIRONMENT_FAILED,
                    message="no such package",
                )
        world.answer()
    assert world.ready() == 2
    assert world.status.phase is ServicePhase.RUNNING
    assert world.status.message == "no such package"
    assert len(world.made) == 3
    world.change(framework=None)
    world.run()
    assert world.ready() == 2
    assert world.status.message == ""


def test_a_service_that_cannot_start_has_failed_and_says_why() -> None:
    world = World(service_of(1))
    world.settle()
    (number,) = world.replicas
    world.replicas[number] = replace(
        world.replicas[number],
        phase=Phase.FAILED,
        reason=Reason.TRAINER_INVALID,
        message="no model there",
    )
    world.settle()
    assert (world.status.phase, world.status.message) == (ServicePhase.FAILED, "no model there")
    assert len(world.made) == 1


def test_a_service_without_a_port_does_not_run_and_says_why() -> None:
    world = World(service_of(1))
    world.no_port = "all ports are taken"
    world.run()
    status = world.status
    assert (status.phase, status.reason, status.message) == (
        ServicePhase.STARTING,
        "NoPort",
        "all ports are taken",
    )
    assert status.ready == 1, "its replica is there"
    world.no_port = ""
    world.run()
    assert (world.status.phase, world.status.reason) == (ServicePhase.RUNNING, "")


def test_a_service_without_a_port_that_cannot_start_either_has_failed() -> None:
    world = World(service_of(1))
    world.no_port = "all ports are taken"
    world.settle()
    (number,) = world.replicas
    world.replicas[number] = replace(
        world.replicas[number],
        phase=Phase.FAILED,
        reason=Reason.TRAINER_INVALID,
        message="no model there",
    )
    world.settle()
    assert (world.status.phase, world.status.message) == (ServicePhase.FAILED, "no model there")


def test_a_replica_that_ended_by_itself_is_replaced() -> None:
    world = running(1)
    (number,) = world.replicas
    world.replicas[number] = replace(world.replicas[number], phase=Phase.SUCCEEDED, ready=False)
    world.run()
    assert world.ready() == 1
    assert number not in world.replicas


def test_a_saved_service_waits_and_a_deleted_one_is_forgotten_last() -> None:
    world = World(service_of(1, save_mode=True))
    world.run()
    assert world.status.phase is ServicePhase.SAVED
    assert not world.made
    world.want(Desired.RUN)
    world.run()
    assert world.ready() == 1
    world.want(Desired.STOPPED)
    world.run()
    assert world.status.phase is ServicePhase.STOPPED
    world.want(Desired.RUN)
    world.run()
    world.delete()
    world.settle()
    assert not world.gone
    world.run()
    assert world.gone


def test_so_many_that_have_ended_are_kept_the_latest() -> None:
    world = running(1)
    for memory in range(1, 6):
        world.change(memory_limit=f"{memory}00M")
        world.run()
    assert sorted(world.ended) == [3, 4, 5]
    world.keep_ended = 1
    world.want(Desired.STOPPED)
    world.run()
    assert sorted(world.ended) == [6]
    assert world.status.phase is ServicePhase.STOPPED, "what is kept does not count as a replica"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("replicas"), st.integers(1, 4)),
        st.tuples(st.just("memory"), st.sampled_from(["100M", "200M"])),
        st.tuples(st.just("look"), st.integers(1, 3)),
        st.tuples(st.just("answer"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("silence"), st.integers(0, 5)),
        st.tuples(st.just("want"), st.sampled_from([Desired.RUN, Desired.STOPPED])),
    ),
    max_size=40,
)


@example(
    [
        ("replicas", 4),
        ("look", 2),
        ("end", 0),
        ("replicas", 1),
        ("look", 2),
        ("end", 0),
        ("end", 1),
        ("end", 2),
    ]
)
@example(
    [
        ("replicas", 4),
        ("look", 2),
        ("end", 0),
        ("replicas", 1),
        ("look", 2),
        ("end", 0),
        ("end", 1),
        ("end", 2),
    ]
)  # replicas end by themselves while they are being stopped
@given(STEPS)
@settings(max_examples=300)
def test_whatever_happens_it_ends_as_it_is_wanted(steps: list[tuple[str, object]]) -> None:
    world = World(service_of(2))
    for step, value in steps:
        numbers = sorted(world.replicas)
        chosen = numbers[int(value) % len(numbers)] if numbers and isinstance(value, int) else None
        if step == "replicas":
            world.change(replicas=value)
        elif step == "memory":
            world.change(memory_limit=value)
        elif step == "want":
            world.want(Desired(value))
        elif step == "look":
            for _ in range(int(str(value))):
                world.step()
        elif step == "answer":
            world.answer(lambda each, value=value: each.number % 4 == value)
        elif chosen is not None:
            each = world.replicas[chosen]
            phase = Phase.SUCCEEDED if step == "end" else each.phase
            world.replicas[chosen] = replace(each, phase=phase, ready=False)
            if step == "end" and each.leaving:
                world.end(chosen)
    world.run()
    expected = replicas_of(world.record.spec, world.status)
    assert world.ready() == expected == len(world.replicas)
    assert {each.template for each in world.replicas.values()} <= {world.record.spec.template}
    assert world.status.phase is (ServicePhase.RUNNING if expected else ServicePhase.STOPPED)

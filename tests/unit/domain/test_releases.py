"""A candidate beside what is served: its replicas, its promotion, ways back, and what may not be
asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.releases import (
    change_fields,
    promote_candidate,
    rolled_back,
    rolled_back_to,
)
from cloud_ml.domain.services.scale import candidates_of
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import ServicePhase, ServiceStatus
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.errors import Conflict, InvalidRequest
from support.service_world import World, running, service_of

BETTER = {"model_uri": "fds://bucket/better"}


def attempt(world: World, share: int | None, **fields: Any) -> None:
    spec = change_fields(
        world.record.spec, fields, share, served=world.status.serving_template, keep=3
    )
    world.record = replace(world.record, spec=spec)


def promote(world: World) -> None:
    spec = promote_candidate(world.record.spec, served=world.status.serving_template, keep=3)
    world.record = replace(world.record, spec=spec)


def roll_back(world: World) -> None:
    world.record = replace(world.record, spec=rolled_back(world.record.spec))


def templates(world: World) -> list[int]:
    return sorted(each.template for each in world.replicas.values() if each.ready)


def tried(replicas: int = 4, share: int = 25) -> World:
    world = running(replicas)
    attempt(world, share, **BETTER)
    world.run()
    return world


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 10, 1), (4, 0, 1), (4, 25, 1), (4, 26, 2), (3, 100, 3)]
)
def test_a_candidate_has_replicas_for_its_share_beside_all_others(
    count: int, share: int, expected: int
) -> None:
    world = tried(count, share)
    assert templates(world) == [1] * count + [2] * expected
    assert (world.status.phase, world.status.ready) == (ServicePhase.RUNNING, count)
    assert world.status.candidate is not None
    assert (world.status.candidate.phase, world.status.candidate.ready) == (
        ServicePhase.RUNNING,
        expected,
    )


def test_another_share_is_another_number_of_replicas_and_nothing_else() -> None:
    world = tried(4, 25)
    before = set(world.replicas)
    attempt(world, 75)
    world.run()
    assert templates(world) == [1] * 4 + [2] * 3
    assert before < set(world.replicas)
    attempt(world, 50, replicas=2)
    world.run()
    assert templates(world) == [1, 1, 2], "how many there are belongs to the service"


def test_a_promoted_candidate_keeps_its_replicas_and_never_fewer_answer() -> None:
    world = tried(4, 50)
    first = {number for number, each in world.replicas.items() if each.template == 2}
    promote(world)
    for _ in range(50):
        world.settle()
        assert world.ready() >= 4
        world.answer()
    assert templates(world) == [2] * 4
    assert first < set(world.replicas)
    assert world.status.candidate is None
    assert world.record.spec.earlier[-1].submitted.model_uri == "fds://bucket/m"


def test_a_candidate_that_is_rolled_back_goes_at_once_and_the_others_stay() -> None:
    world = tried(2, 50)
    stable = {number for number, each in world.replicas.items() if each.template == 1}
    silent = min(stable)
    world.replicas[silent] = replace(world.replicas[silent], ready=False)
    roll_back(world)
    world.settle()
    assert {number for number, each in world.replicas.items() if not each.leaving} == stable, (
        "it stands in for nobody"
    )
    world.run()
    assert templates(world) == [1, 1]
    attempt(world, 50, **BETTER)
    assert world.record.spec.candidate is not None
    assert world.record.spec.candidate.template == 3, "a number is used once"


def test_a_candidate_that_cannot_start_changes_nothing_but_says_why() -> None:
    world = running(2)
    attempt(world, 50, framework="tensorflow")
    for _ in range(10):
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
    status = world.status
    assert (status.phase, status.ready, status.message) == (ServicePhase.RUNNING, 2, "")
    assert status.candidate is not None
    assert (status.candidate.phase, status.candidate.message) == (
        ServicePhase.FAILED,
        "no such package",
    )
    assert len(world.made) == 3, "it is not tried for ever"
    attempt(world, 50, framework="onnx")
    world.run()
    assert templates(world) == [1, 1, 3], "another one takes its place"


def test_a_service_that_stops_comes_back_with_its_candidate() -> None:
    world = tried(2, 50)
    world.want(Desired.STOPPED)
    world.run()
    assert not world.replicas
    assert world.status.candidate is not None
    assert world.status.candidate.phase is ServicePhase.STOPPED
    world.want(Desired.RUN)
    world.run()
    assert templates(world) == [1, 1, 2]
    world.delete()
    world.run()
    assert world.gone


def test_more_and_fewer_by_what_is_asked_hold_for_both() -> None:
    model = replace(service_of(2), max_replicas=8, idle_scale_down="30m")
    spec = change_fields(specs.from_wire(model), BETTER, 50)
    assert [candidates_of(spec, ServiceStatus(scale=count)) for count in (0, 1, 8, 99)] == [
        1,
        1,
        4,
        4,
    ]


def test_ways_back_lead_to_what_has_answered_as_a_whole_and_end() -> None:
    world = running(1)
    world.change(**BETTER)
    world.run()
    world.change(model_uri="fds://bucket/broken", replicas=2)  # and never answers
    world.settle()
    assert [each.template for each in world.record.spec.earlier] == [1, 2]
    world.change(model_uri="fds://bucket/worse")
    assert [each.template for each in world.record.spec.earlier] == [1, 2], (
        "the broken one was never any good"
    )
    roll_back(world)
    world.run()
    assert templates(world) == [2, 2], "as many as there were"
    roll_back(world)
    world.run()
    assert templates(world) == [1, 1]
    assert world.record.spec.submitted.model_uri == "fds://bucket/m"
    with pytest.raises(Conflict, match="no release from before 1 is kept") as refused:
        roll_back(world)
    assert "discards newer releases" in str(refused.value.hint)
    world.change(**BETTER)
    assert world.record.spec.template == 5


def test_only_so_many_are_kept() -> None:
    spec = ServiceSpec(service_of(1))
    for number in range(2, 9):
        spec = change_fields(
            spec, {"model_uri": f"fds://bucket/{number}"}, served=spec.template, keep=3
        )
    assert [each.template for each in spec.earlier] == [5, 6, 7]
    assert change_fields(spec, BETTER, served=spec.template, keep=0).earlier == spec.earlier


@pytest.mark.parametrize("share", [-1, 101, "many", "10.5", True])
def test_a_share_is_a_percentage(share: Any) -> None:
    with pytest.raises(InvalidRequest, match="a whole number from 0 to 100") as refused:
        change_fields(ServiceSpec(service_of(1)), BETTER, share)
    assert (refused.value.field, refused.value.value) == ("canary", share)


@pytest.mark.parametrize("fields", [{}, {"replicas": 3}, {"model_uri": "fds://bucket/m"}])
def test_there_must_be_something_to_try(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="canary is 10, but") as refused:
        change_fields(ServiceSpec(service_of(1)), fields, 10)
    assert "model_uri" in str(refused.value.allowed)


def test_while_one_is_tried_what_is_served_stays_and_the_service_may_change() -> None:
    spec = change_fields(ServiceSpec(service_of(1)), BETTER, 10)
    with pytest.raises(Conflict, match="memory_limit cannot be changed: release 2 is being tried"):
        change_fields(spec, {"memory_limit": "1G"})
    more = change_fields(spec, {"replicas": 5, "access": "open"})
    assert (more.submitted.replicas, more.template, more.candidate) == (5, 1, spec.candidate)
    other = change_fields(more, {"memory_limit": "1G"}, 10)
    assert other.candidate is not None
    assert (other.candidate.template, other.candidate.submitted.model_uri) == (
        3,
        BETTER["model_uri"],
    )
    with pytest.raises(InvalidRequest, match="does not differ"):
        change_fields(spec, {"model_uri": "fds://bucket/m"}, 10)
    served = promote_candidate(other, served=1, keep=3).submitted
    assert (served.replicas, served.access, served.memory_limit) == (5, "open", "1G")


def test_a_request_that_is_sent_again_changes_nothing() -> None:
    spec = change_fields(ServiceSpec(service_of(1)), BETTER, 10)
    once = promote_candidate(spec, served=1, keep=3, release=2)
    assert promote_candidate(once, served=1, keep=3, release=2) == once
    back = rolled_back(once, release=2)
    assert rolled_back(back, release=2) == back
    assert rolled_back(rolled_back(spec, release=2), release=2).candidate is None
    for wrong in (1, 3):
        with pytest.raises(Conflict):
            promote_candidate(spec, served=1, keep=3, release=wrong)
    for wrong in (1, 3):
        with pytest.raises(Conflict):
            rolled_back(spec, release=wrong)
    with pytest.raises(Conflict, match="no candidate to promote") as refused:
        promote_candidate(once, served=1, keep=3)
    assert (refused.value.allowed or "").startswith("a service with a candidate")
    assert "cloudml models update NAME VERSION --model_uri URI --canary 10" in str(
        refused.value.hint
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("try"), st.integers(0, 100)),
        st.tuples(st.just("change"), st.integers(1, 3)),
        st.tuples(st.just("replicas"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["promote", "back", "stop", "start"]), st.just(0)),
        st.tuples(st.sampled_from(["look", "answer", "end"]), st.integers(0, 4)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=300)
def test_whatever_happens_both_sides_end_as_they_are_wanted(steps: list[tuple[str, int]]) -> None:
    world = running(2)
    for step, value in steps:
        try:
            if step == "try":
                attempt(world, value, model_uri=f"fds://bucket/{value % 3}")
            elif step == "change":
                world.change(model_uri=f"fds://bucket/x{value}")
            elif step == "replicas":
                world.change(replicas=value)
            elif step == "promote":
                promote(world)
            elif step == "back":
                roll_back(world)
        except (Conflict, InvalidRequest):
            continue
        if step in ("stop", "start"):
            world.want(Desired.RUN if step == "start" else Desired.STOPPED)
        elif step == "look":
            for _ in range(value):
                world.step()
        elif step == "answer":
            world.answer(lambda each, value=value: each.number % 4 == value)
        elif step == "end" and value in world.replicas:
            world.replicas[value] = replace(
                world.replicas[value], phase=Phase.SUCCEEDED, ready=False
            )
    world.want(Desired.RUN)
    world.run()
    spec = world.record.spec
    expected = [spec.template] * int(spec.submitted.replicas)
    if spec.candidate is not None:
        expected += [spec.candidate.template] * candidates_of(spec, world.status)
    assert templates(world) == sorted(expected)
    assert len({each.template for each in spec.earlier} | {spec.template}) == len(spec.earlier) + 1


def test_the_time_of_a_call_is_that_of_the_service_and_makes_a_release() -> None:
    model = replace(service_of(1), call_timeout="2m", model_args="--x=1")
    spec = specs.replica(specs.Release(1, model))
    assert "--rest_api_timeout_in_ms=120000" in spec.workload.program.arguments
    assert spec.workload.program.arguments[-1] == "--x=1", "flags of the user's own come last"
    assert specs.call_timeout_s(model) == 120.0
    assert specs.call_timeout_s(service_of(1)) is None
    assert change_fields(specs.from_wire(service_of(1)), {"call_timeout": "2m"}).template == 2
    with pytest.raises(InvalidRequest, match="call_timeout"):
        replace(service_of(1), call_timeout="soon")


def test_replicas_take_what_the_gateway_takes() -> None:
    release = specs.Release(1, service_of(1))
    usual = specs.replica(release)
    larger = specs.RequestLimits(message_bytes=100 << 20, head_bytes=40_000)
    found = specs.replica(release, limits=larger).workload.program.arguments
    assert {"--max_message_bytes=104857600", "--head_bytes=40000"} <= {*found}
    assert specs.replica(release, limits=specs.RequestLimits()) == usual
    assert not [each for each in usual.workload.program.arguments if "_bytes" in each]


def test_a_rollback_to_a_release_discards_later_ones() -> None:
    spec = ServiceSpec(service_of(1))
    for number in range(2, 5):
        spec = change_fields(
            spec, {"model_uri": f"fds://bucket/m{number}"}, None, served=spec.template, keep=5
        )
    assert [each.template for each in spec.earlier] == [1, 2, 3]
    back = rolled_back_to(spec, 2)
    assert (back.template, back.submitted.model_uri) == (2, "fds://bucket/m2")
    assert [each.template for each in back.earlier] == [1]
    assert back.newest == 4, "a number is never given twice"
    assert rolled_back_to(back, 2) == back
    tried = change_fields(back, {"model_uri": "fds://bucket/m9"}, 10)
    assert rolled_back_to(tried, 2).candidate is None
    assert rolled_back_to(tried, 1).template == 1
    with pytest.raises(Conflict, match="release 3 is not kept") as refused:
        rolled_back_to(back, 3)
    assert refused.value.allowed == "one of 1, 2"

"""How many replicas follow from what is asked of a service."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.scale import Policy, Sample, decide_count, policy_of, replicas_of
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.models.services.model_service import ModelService

POLICY = Policy(normal=2, most=8, target=4.0, down_s=60.0)


def samples(*loads: float, quiet_s: float = 0.0) -> list[Sample]:
    """A sample each second, with so many calls under way in between."""
    busy, found = 0.0, [Sample(0.0, 0.0)]
    for second, load in enumerate(loads, 1):
        busy += load
        found.append(Sample(float(second), busy, quiet_s if second == len(loads) else 0.0))
    return found


def test_more_is_asked_for_than_there_is_for() -> None:
    assert decide_count(POLICY, 2, samples(*[8.0] * 3)) == 2, "just enough"
    assert decide_count(POLICY, 2, samples(*[20.0] * 3)) == 5
    assert decide_count(POLICY, 2, samples(*[500.0] * 3)) == 8, "no more than allowed"
    assert decide_count(POLICY, 2, samples(500.0)) == 2, "one second is too little to know"


def test_less_has_to_last() -> None:
    assert decide_count(POLICY, 8, samples(*[4.0] * 59)) == 8
    assert decide_count(POLICY, 8, samples(*[4.0] * 60)) == 2, "no fewer than normal"
    assert decide_count(POLICY, 8, samples(*[4.0] * 30, *[20.0] * 3, *[4.0] * 30)) == 5, (
        "as many as the most of that time"
    )


def test_nothing_at_all_for_long() -> None:
    idle = Policy(normal=2, most=2, target=4.0, down_s=60.0, idle_s=100.0)
    assert decide_count(idle, 2, samples(*[0.0] * 61, quiet_s=61.0)) == 2
    assert decide_count(idle, 2, samples(*[0.0] * 3, quiet_s=100.0)) == 1
    assert decide_count(idle, 1, samples(*[0.0] * 70, quiet_s=170.0)) == 1
    assert decide_count(idle, 1, samples(*[0.0] * 3, 0.01)) == 2, (
        "the first call brings the others back"
    )


def test_a_service_that_says_nothing_is_left_alone() -> None:
    plain = specs.from_wire(ModelService("m", "v1", "fds://bucket/m", replicas=3))
    policy = policy_of(plain, 4.0, 60.0)
    assert policy.fixed
    assert decide_count(policy, 3, samples(*[500.0] * 9)) == 3
    assert replicas_of(plain, ServiceStatus(scale=9)) == 3, (
        "what was decided under other limits is within these"
    )
    wide = specs.from_wire(
        ModelService("m", "v1", "fds://bucket/m", replicas=3, max_replicas=9, idle_scale_down="30m")
    )
    assert [replicas_of(wide, ServiceStatus(scale=scale)) for scale in (0, 1, 5, 99)] == [
        3,
        1,
        5,
        9,
    ]


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(0, 10),
    st.sampled_from([0.0, 30.0]),
    st.lists(st.floats(0, 1000), max_size=90),
    st.floats(0, 100),
)
def test_it_is_always_within_bounds(
    current: int, normal: int, more: int, idle_s: float, loads: list[float], quiet_s: float
) -> None:
    policy = Policy(normal, normal + more, 4.0, 60.0, idle_s)
    found = decide_count(policy, current, samples(*loads, quiet_s=quiet_s))
    assert policy.least <= found <= policy.most

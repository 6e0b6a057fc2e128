"""How many tasks an attempt of an elastic workload has."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cloud_ml.domain.workloads.spec import Program, Role, WorkloadSpec
from cloud_ml.domain.workloads.worlds import at_least, is_larger, largest, within

GANG = WorkloadSpec(
    Program("m", "fds://b/t"),
    (Role("chief"), Role("worker", 4, least=1), Role("reader", 3, least=2)),
    recipe="cluster",
)


def counts(workload: WorkloadSpec) -> dict[str, int]:
    return {role.name: role.replicas for role in workload.roles}


@pytest.mark.parametrize(
    ("most_tasks", "world"),
    [
        (0, {"chief": 1, "worker": 1, "reader": 2}),
        (4, {"chief": 1, "worker": 1, "reader": 2}),
        (5, {"chief": 1, "worker": 2, "reader": 2}),
        (6, {"chief": 1, "worker": 2, "reader": 3}),
        (7, {"chief": 1, "worker": 3, "reader": 3}),
        (99, {"chief": 1, "worker": 4, "reader": 3}),
    ],
)
def test_the_largest_that_fits_is_at_least_the_smallest(
    most_tasks: int, world: Mapping[str, int]
) -> None:
    assert largest(GANG, lambda one: one.task_count <= most_tasks) == world


def test_a_role_for_which_there_is_no_room_keeps_no_other_small() -> None:
    fits = lambda one: counts(one)["worker"] < 2  # noqa: E731
    assert largest(GANG, fits) == {"chief": 1, "worker": 1, "reader": 3}


def test_it_is_not_larger_than_it_may_be() -> None:
    most = {"chief": 1, "worker": 2, "reader": 2}
    assert largest(GANG, lambda _: True, most) == most


def test_an_attempt_has_the_tasks_of_its_world() -> None:
    small = within(GANG, {"chief": 1, "worker": 2, "reader": 2})
    assert small.tasks == ("chief-0", "worker-0", "worker-1", "reader-0", "reader-1")
    assert not small.is_elastic
    assert within(GANG, {}) is GANG
    assert counts(at_least(GANG)) == {"chief": 1, "worker": 1, "reader": 2}
    fixed = within(GANG, {"worker": 2})
    assert at_least(fixed) is fixed


def test_larger_means_more_of_one_role_and_less_of_none() -> None:
    assert is_larger({"a": 2, "b": 1}, {"a": 1, "b": 1})
    assert not is_larger({"a": 1, "b": 1}, {"a": 1, "b": 1})
    assert not is_larger({"a": 4, "b": 1}, {"a": 1, "b": 2})

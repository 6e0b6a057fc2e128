"""How many tasks an attempt of an elastic workload has: its world. Pure.

A world is role → number of tasks. It is committed with the start of an attempt, and never changes
within one. Workloads that are not elastic have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cloud_ml.domain.workloads.spec import WorkloadSpec

World = Mapping[str, int]
NO_WORLD: World = {}


def within(workload: WorkloadSpec, world: World) -> WorkloadSpec:
    """The workload with the tasks of a world only, as an attempt has them; all without one."""
    if not world:
        return workload
    roles = (
        replace(role, replicas=world.get(role.name, role.replicas), least=None)
        for role in workload.roles
    )
    return replace(workload, roles=tuple(roles))


def at_least(workload: WorkloadSpec) -> WorkloadSpec:
    """The workload with as few tasks as it can do with: what must fit before it may start."""
    return within(workload, least_of(workload)) if workload.is_elastic else workload


def least_of(workload: WorkloadSpec) -> World:
    """The smallest world."""
    return {
        role.name: role.replicas if role.least is None else role.least for role in workload.roles
    }


def most_of(workload: WorkloadSpec) -> World:
    """The largest world."""
    return {role.name: role.replicas for role in workload.roles}


def largest(
    workload: WorkloadSpec, fits: Callable[[WorkloadSpec], bool], most: World = NO_WORLD
) -> World:
    """The largest world that fits, at least the smallest. Roles become larger by turns.

    Args:
        workload: Elastic.
        fits: Whether there is room for a workload.
        most: Not more than these tasks.
    """
    world = dict(least_of(workload))
    limits = {
        role.name: min(role.replicas, most.get(role.name, role.replicas)) for role in workload.roles
    }
    growing = [name for name, count in world.items() if count < limits[name]]
    while growing:
        for name in list(growing):
            larger = {**world, name: world[name] + 1}
            if fits(within(workload, larger)):
                world = larger
            if world is not larger or world[name] >= limits[name]:
                growing.remove(name)
    return world


def is_larger(one: World, other: World) -> bool:
    """Whether ``one`` has more tasks than ``other``, and not fewer of any role."""
    more = count(one) > count(other)
    return more and all(one.get(name, 0) >= number for name, number in other.items())


def count(world: World) -> int:
    """The number of tasks."""
    return sum(world.values())

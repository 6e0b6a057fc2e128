"""Which replicas of a service are to be there, one step further than they are. Pure.

The stable release is rolled: a new replica is added, and once it answers an old one goes. Where the
quota has no room for one more, an old one goes first, and the new one takes its place. The
candidate stands beside it: what is on trial neither counts for the stable release nor keeps
anything of it from going.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.services.failures import served_release
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import DesiredReplica, SeenReplica, ServiceStatus

ObservedReplicas = Mapping[int, SeenReplica]


def plan_replicas(
    spec: ServiceSpec,
    status: ServiceStatus,
    replicas: Sequence[SeenReplica],
    *,
    deleting: bool,
    in_place: bool = False,
) -> tuple[DesiredReplica, ...]:
    """The replicas that are to be there.

    Args:
        spec: What is wanted.
        status: What was decided before.
        replicas: Those that have not ended.
        deleting: Whether none is to be there.
        in_place: Whether a new replica that waits for room takes the place of an old one; see
            ``blocked_by_room``.
    """
    count = 0 if deleting else replicas_of(spec, status)
    if count == 0:
        return ()
    observed = {replica.number: replica for replica in replicas}
    there = [
        _taken_in(desired, spec)
        for desired in status.wishes
        if not _spent(observed.get(desired.number)) and status.failure_of(desired.template) is None
    ]
    rolling = [desired for desired in there if not desired.trial]
    release = served_release(spec, status)
    if status.failure_of(release) is None:
        stable = _roll_replicas(rolling, release, count, observed, status.next)
    else:
        stable = rolling[-count:]  # of older releases, if any: they cannot be made again
    if in_place:
        stable = _without_one_old(stable, release, observed)
    number = max([status.next, *(desired.number + 1 for desired in stable)])
    tried = _plan_canary(
        [desired for desired in there if desired.trial], spec, status, observed, number
    )
    return tuple(sorted([*stable, *tried], key=lambda desired: desired.number))


def blocked_by_room(
    spec: ServiceSpec, status: ServiceStatus, replicas: Sequence[SeenReplica]
) -> SeenReplica | None:
    """The new replica for which a roll-out waits: the quota or the machine has no room beside the
    old ones.

    ``None`` while something else may still make room: a replica that is ending, or a new one that
    does not answer yet and is followed by the end of an old one.
    """
    desired_numbers = {desired.number for desired in status.wishes}
    if any(replica.leaving or replica.number not in desired_numbers for replica in replicas):
        return None
    observed = {replica.number: replica for replica in replicas}
    stable = [
        desired for desired in status.wishes if not desired.trial and desired.number in observed
    ]
    new = [observed[desired.number] for desired in stable if desired.template == spec.template]
    if len(new) == len(stable):  # no old one is there, which could end
        return None
    waiting = [replica for replica in new if replica.waits_for_room]
    starting = [replica for replica in new if not replica.ready and not replica.waits_for_room]
    if starting or not waiting:
        return None
    return min(waiting, key=lambda each: each.number)


def _without_one_old(
    stable: Sequence[DesiredReplica], template: int, observed: ObservedReplicas
) -> list[DesiredReplica]:
    """One that does not answer goes first, else the oldest."""
    old = [desired for desired in stable if desired.template != template]
    if not old:
        return list(stable)
    ready = {number for number, replica in observed.items() if replica.ready}
    first = min(old, key=lambda desired: (desired.number in ready, desired.number))
    return [desired for desired in stable if desired is not first]


def stable_numbers(replicas: Sequence[DesiredReplica]) -> frozenset[int]:
    """Replicas that are to answer for what is served."""
    return frozenset(desired.number for desired in replicas if not desired.trial)


def _taken_in(desired: DesiredReplica, spec: ServiceSpec) -> DesiredReplica:
    """A promoted candidate's replicas are on trial no more."""
    return (
        replace(desired, trial=False)
        if desired.trial and desired.template == spec.template
        else desired
    )


def _roll_replicas(
    there: Sequence[DesiredReplica],
    template: int,
    count: int,
    observed: ObservedReplicas,
    number: int,
) -> list[DesiredReplica]:
    new = [desired for desired in there if desired.template == template]
    old = [desired for desired in there if desired.template != template]
    ready = {number for number, replica in observed.items() if replica.ready}
    surge = 1 if old else 0
    broken = _broken(new, observed)
    while len(new) < count and len(new) + len(old) < count + surge and not broken:
        new.append(DesiredReplica(number, template))
        number += 1
    answering = [desired for desired in new if desired.number in ready]
    keep_old = max(0, count - len(answering))
    # One that does not answer goes first.
    old.sort(key=lambda desired: (desired.number in ready, desired.number))
    new.sort(key=lambda desired: (desired.number not in ready, desired.number))
    # Not old[-keep_old:], which returns the whole list if keep_old is 0.
    return [*new[:count], *old[len(old) - min(len(old), keep_old) :]]


def _plan_canary(
    there: Sequence[DesiredReplica],
    spec: ServiceSpec,
    status: ServiceStatus,
    observed: ObservedReplicas,
    number: int,
) -> list[DesiredReplica]:
    """Those of the present candidate; those of another go at once, since the stable release has
    room for all calls.
    """
    if spec.candidate is None or status.failure_of(spec.candidate.template) is not None:
        return []
    template, count = spec.candidate.template, candidates_of(spec, status)
    mine = [desired for desired in there if desired.template == template]
    mine.sort(
        key=lambda desired: (
            not (desired.number in observed and observed[desired.number].ready),
            desired.number,
        )
    )
    missing = 0 if _broken(mine, observed) else count - len(mine)
    return [
        *mine[:count],
        *(DesiredReplica(number + more, template, trial=True) for more in range(missing)),
    ]


def _broken(new: Sequence[DesiredReplica], observed: ObservedReplicas) -> bool:
    return any(observed[desired.number].hopeless for desired in new if desired.number in observed)


def _spent(replica: SeenReplica | None) -> bool:
    """Whether another takes the place of a replica. One that is hopeless keeps it, or it would
    be tried for ever.
    """
    return replica is not None and (
        replica.leaving or (replica.phase.terminal and not replica.hopeless)
    )

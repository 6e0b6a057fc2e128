"""Which releases of a service cannot be served. Pure.

A release has failed when none of its replicas has ever answered and one of them never will: its
model cannot be loaded, or the replica crashed at each of its tries. Replicas of a failed release
end, so that they hold no quota. Where an earlier release has answered, that one is served on.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import FailedRelease, SeenReplica, ServiceStatus
from cloud_ml.domain.workloads.reasons import Reason


def releases_of(spec: ServiceSpec, status: ServiceStatus) -> tuple[int, ...]:
    """The releases that may be served: the present one, the candidate, and the last good one."""
    candidate = () if spec.candidate is None else (spec.candidate.template,)
    good = status.serving_template
    last_good = (
        (good,) if any(each.template == good != spec.template for each in spec.earlier) else ()
    )
    return (spec.template, *candidate, *last_good)


def answered_releases(
    spec: ServiceSpec, status: ServiceStatus, replicas: Sequence[SeenReplica], *, deleting: bool
) -> tuple[int, ...]:
    """Releases of which a replica has answered since the service was started; those that still
    matter.
    """
    if deleting or replicas_of(spec, status) == 0:
        return ()
    ready = {each.template for each in replicas if each.ready}
    matter = {*releases_of(spec, status), *(desired.template for desired in status.wishes)}
    return tuple(sorted((ready | set(status.answered)) & matter))


def failed_releases(
    spec: ServiceSpec,
    status: ServiceStatus,
    replicas: Sequence[SeenReplica],
    answered: Sequence[int],
    *,
    tries: int,
    deleting: bool,
) -> tuple[FailedRelease, ...]:
    """The releases that cannot be served, with what was found before; none while the service is
    not to answer.
    """
    if deleting or replicas_of(spec, status) == 0:
        return ()
    found = []
    for release in releases_of(spec, status):
        failure = status.failure_of(release)
        if failure is None and release not in answered:
            failure = _judge(release, replicas, tries)
        if failure is not None:
            found.append(failure)
    return tuple(found)


def _judge(release: int, replicas: Sequence[SeenReplica], tries: int) -> FailedRelease | None:
    for each in replicas:
        if each.template != release or each.leaving:
            continue
        if each.hopeless:
            return FailedRelease(
                release, Reason.MODEL_LOAD_FAILED if each.load_failed else each.reason, each.message
            )
        if each.crashes(tries):
            sentence = f"a replica crashed at each of {tries} tries: {each.message}"
            return FailedRelease(release, each.reason, sentence)
    return None


def served_release(spec: ServiceSpec, status: ServiceStatus) -> int:
    """The release that replicas are made of: the present one, or the last good one where the
    present one failed.
    """
    if status.failure_of(spec.template) is None:
        return spec.template
    good = status.serving_template
    usable = status.failure_of(good) is None and any(each.template == good for each in spec.earlier)
    return good if usable else spec.template

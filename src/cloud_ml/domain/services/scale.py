"""How many replicas a service is to have by what is asked of it. Pure.

Up at once, to what the last seconds ask for; down only when a longer time has asked for less all
along, so that a short pause ends nobody. A service that is asked nothing for long goes down to one
replica, if it was told so, and comes back with the first call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models import common

RECENT_S = 3.0
_AWAKE_S = 2.0


@dataclass(frozen=True)
class Sample:
    """What the gateway had counted at a time: see ``routes.Figures``."""

    at_s: float
    busy_s: float
    quiet_s: float = 0.0


@dataclass(frozen=True)
class Policy:
    """``normal`` replicas, up to ``most`` when ``target`` calls and more are under way at each.

    After ``down_s`` of less, replicas go; after ``idle_s`` of nothing all but one do, with 0 never.
    """

    normal: int
    most: int
    target: float
    down_s: float
    idle_s: float = 0.0

    @property
    def least(self) -> int:
        """The fewest there may be."""
        return 1 if self.idle_s else self.normal

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to decide."""
        return self.least == self.most


def policy_of(spec: ServiceSpec, target: float, down_s: float) -> Policy:
    """What a service wants."""
    submitted = spec.submitted
    normal = int(submitted.replicas)
    idle_s = (
        common.duration_seconds(str(submitted.idle_scale_down))
        if submitted.idle_scale_down is not None
        else 0
    )
    return Policy(
        normal, max(normal, int(submitted.max_replicas or 0)), target, down_s, float(idle_s)
    )


def replicas_of(spec: ServiceSpec, status: ServiceStatus) -> int:
    """How many replicas are wanted now: what was decided last, within what the service says now."""
    if spec.desired is not Desired.RUN:
        return 0
    policy = policy_of(spec, 1.0, 1.0)
    return min(max(status.scale or policy.normal, policy.least), policy.most)


def candidates_of(spec: ServiceSpec, status: ServiceStatus) -> int:
    """How many replicas of the candidate are wanted now: as many for its share of calls as the
    stable release has.
    """
    count = replicas_of(spec, status)
    if spec.candidate is None or not count:
        return 0
    return max(1, math.ceil(count * spec.candidate.share / 100))


def decide_count(policy: Policy, current: int, samples: Sequence[Sample]) -> int:
    """How many replicas there should be.

    Args:
        policy: What the service wants.
        current: How many are wanted now.
        samples: The newest last; none from before the gateway or the number of replicas changed.
    """
    current = min(max(current, policy.least), policy.most)
    if policy.fixed or not samples:
        return current
    newest = samples[-1]
    if policy.idle_s and newest.quiet_s >= policy.idle_s:
        return policy.least
    awake = newest.quiet_s < _AWAKE_S and any(each.busy_s < newest.busy_s for each in samples)
    # An idle service returns to its normal number of replicas only when calls arrive.
    floor = policy.normal if awake or current >= policy.normal else current
    loads = _loads(samples)
    if not loads:
        return max(current, floor)
    # Subtract a little, so that a rounding error does not request one more replica.
    replicas_now = math.ceil(loads[-1] / policy.target - 1e-9)
    if replicas_now > current:
        return min(replicas_now, policy.most)
    if newest.at_s - samples[0].at_s >= policy.down_s:
        replicas_at_peak = math.ceil(max(loads) / policy.target - 1e-9)
        return min(max(replicas_at_peak, floor), current) if current > floor else floor
    return max(current, floor)


def _loads(samples: Sequence[Sample]) -> list[float]:
    """Calls under way, on average over each stretch of ``RECENT_S``."""
    found = []
    start = 0
    for end, sample in enumerate(samples):
        while start < end and sample.at_s - samples[start + 1].at_s >= RECENT_S:
            start += 1
        took = sample.at_s - samples[start].at_s
        if took >= RECENT_S:
            found.append((sample.busy_s - samples[start].busy_s) / took)
    return found

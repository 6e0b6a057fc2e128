"""Looks at what the gateway counts, and wakes a service that is to have more replicas, or fewer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from cloud_ml.controller.routing.gateway import Gateway
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.services.scale import (
    RECENT_S,
    Policy,
    Sample,
    decide_count,
    policy_of,
    replicas_of,
)

_LOOK_S = 1.0
logger = logging.getLogger(__name__)


class Scaling:
    """Samples the figures of services that may be scaled.

    Belongs to one event loop. ``changed`` is called with the uid of a service whose number should
    change.
    """

    def __init__(
        self,
        gateway: Gateway,
        changed: Callable[[str], None],
        *,
        target: float,
        down_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._changed = changed
        self._target = target
        self._down_s = down_s
        self._now = now
        self._policies: dict[str, tuple[Policy, int]] = {}
        self._samples: dict[str, deque[Sample]] = {}
        self._some = asyncio.Event()

    def desired_scale(self, service: ServiceRecord) -> int:
        """The number to commit for a service: that of its status, where there is nothing to
        change.
        """
        uid, current = service.key.uid, replicas_of(service.spec, service.status)
        policy = policy_of(service.spec, self._target, self._down_s)
        if policy.fixed or not current or service.delete_requested_at is not None:
            self.forget(uid)
            return service.status.scale
        known = self._policies.get(uid)
        self._policies[uid] = (policy, current)
        self._some.set()
        samples = self._samples.setdefault(uid, deque())
        if known is not None and known != (policy, current):
            samples.clear()
        found = decide_count(policy, current, samples)
        return found if found != current else service.status.scale

    def forget(self, uid: str) -> None:
        """The service is gone, or not to be scaled."""
        self._policies.pop(uid, None)
        self._samples.pop(uid, None)
        if not self._policies:
            self._some.clear()

    async def run(self) -> None:
        """Look every second while there is a service to scale. Never returns."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """Take a sample of each, and wake those that should change."""
        for uid in list(self._policies):
            try:
                self._look_at(uid, self._now())
            except Exception:
                logger.exception("the figures of a service cannot be judged", extra={"uid": uid})

    def _look_at(self, uid: str, now: float) -> None:
        policy, current = self._policies[uid]
        figures = self._gateway.figures.get(uid)
        if figures is None:
            return
        samples = self._samples[uid]
        if samples and figures.busy_s < samples[-1].busy_s:
            samples.clear()  # another gateway counts from the beginning
        samples.append(Sample(now, figures.busy_s, figures.quiet_s))
        while len(samples) > 2 and now - samples[1].at_s > max(self._down_s, RECENT_S):
            samples.popleft()
        if decide_count(policy, current, samples) != current:
            self._changed(uid)

"""Who may run, over all kinds: one account of the machine, the quotas of all organisations, a
line for each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cloud_ml.controller.placement.quotas import QuotaBook
from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.domain.quotas import QUOTA, QuotaSpec
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.engines.base import Capacity, Engine
from cloud_ml.observability.metrics import Metrics, Reading
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.offload import Offload

_JOBS_PER_CORE = 4
_UNLIMITED = QuotaSpec()
_PORTS = (range(20_000, 30_000),)


@dataclass(frozen=True)
class _Term:
    """What is known during one term."""

    capacity: Capacity
    quotas: QuotaBook
    ports: TaskPorts
    lines: list[Slots] = field(default_factory=list)
    reserving: list[tuple[Slots, int]] = field(default_factory=list)
    """Lines that keep places for organisations that hold none, with the number of places of
    each.
    """


class Scheduler:
    """Makes the lines of the other controllers, which therefore begin a term after it.

    Args:
        store: Keeps quotas and organisations.
        engine: Whose capacity is given out.
        settings: How many jobs may run, and how many places are kept for organisations that hold
            none.
        offload: Runs the calls of the store.
        default_quota: The quota of organisations that have none of their own.
        ports: Those of jobs whose tasks find each other.
        metrics: Told how many of these ports jobs have.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        engine: Engine,
        settings: ControllerSettings,
        offload: Offload,
        default_quota: QuotaSpec = _UNLIMITED,
        ports: Sequence[range] = _PORTS,
        metrics: Metrics | None = None,
    ) -> None:
        if metrics is not None:
            description = "Ports of engine.ports that jobs have."
            metrics.add([Reading("cloudml_task_ports", description, (), self._ports_taken)])
        self._ports = ports
        self._store = store
        self._engine = engine
        self._settings = settings
        self._offload = offload
        self._default_quota = default_quota
        self._term: _Term | None = None

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        quotas = QuotaBook(self._store, self._default_quota)
        now = self._term = _Term(await self._engine.capacity(), quotas, TaskPorts(self._ports))
        await self._offload(quotas.load)

        async def quota_changed(uid: str) -> None:
            if (org := await self._offload(quotas.read, uid)) is not None:
                for line in now.lines:
                    line.quota_changed(org)

        async def organisations_changed(_: str) -> None:
            for line, most in now.reserving:
                line.reserve(await self._count_reserved(most))

        return ControllerTasks(
            handlers={QUOTA.name: quota_changed, ORGANISATION.name: organisations_changed},
            # Load again once the change feed is followed: a quota may have changed since the
            # first load.
            prepare=[quotas.load],
        )

    @property
    def capacity(self) -> Capacity:
        """What the machine has, as it was when the term began."""
        return self._require_term.capacity

    async def line(
        self,
        kind: str,
        wake: Callable[[str], None],
        *,
        most: int,
        opened: bool = True,
        reserving: bool = False,
    ) -> Slots:
        """A line for one kind of work, beside those of the others. It is for this term only.

        Args:
            kind: Which limits of a quota count, see ``Slots``.
            wake: Called with the uid of the record whose turn it is.
            most: How many may run at once.
            opened: Whether places are given out at once.
            reserving: Whether places are kept for organisations that hold none.
        """
        term = self._require_term
        line = Slots(
            most,
            term.capacity,
            wake,
            term.quotas,
            kind=kind,
            beside=term.lines,
            opened=opened,
            ports=term.ports,
        )
        if reserving:
            term.reserving.append((line, most))
            line.reserve(await self._count_reserved(most))
        return line

    def _ports_taken(self) -> Mapping[tuple[str, ...], float]:
        return {(): float(self._term.ports.taken) if self._term is not None else 0.0}

    @property
    def _require_term(self) -> _Term:
        if self._term is None:
            raise RuntimeError(
                "the scheduler begins a term before the controllers that ask it for lines"
            )
        return self._term

    async def _count_reserved(self, most: int) -> int:
        """How many places are kept for organisations that hold none: where there is one
        organisation only, none.
        """
        # Count no further than two: only whether there is more than one organisation matters.
        # Reserve fewer than half of the places.
        organisations = await self._offload(self._store.count, ORGANISATION, org=SYSTEM, most=2)
        return min(self._settings.reserved_places, (most - 1) // 2) if organisations > 1 else 0


def most_jobs(settings: ControllerSettings) -> int:
    """How many jobs may run at once."""
    return settings.max_running_jobs or _JOBS_PER_CORE * len(os.sched_getaffinity(0))

"""What is used and what is free, counted from the jobs that hold a place on the engine.
Blocking.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from cloud_ml.domain.records import Kind, Summary
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.memory_growth import reserve_memory
from cloud_ml.domain.workloads.phases import ACTIVE, WorkloadStatus
from cloud_ml.domain.workloads.spec import W
from cloud_ml.engines.base import Capacity
from cloud_ml.state.base import StateStore


@dataclass(frozen=True)
class Used:
    """What active jobs were given. Jobs without a limit count as jobs only."""

    jobs: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    gpus: int = 0


def measure_use(store: StateStore, org: str | None, kind: Kind[W, WorkloadStatus]) -> Used:
    """What the active jobs of an organisation (of all, for ``None``) were given."""
    jobs = cpu = memory = gpus = 0
    after: int | None = None
    while True:
        page = store.list(kind, org=org, indexes=ACTIVE, after=after, limit=1000)
        for line in page.items:
            record = store.get(kind, line.key.uid)
            if record is None:
                continue
            jobs += 1
            status = record.status
            workload = reserve_memory(record.spec.workload, status)
            for role in workload.roles:
                tasks = workload.at_once(role)
                cpu += tasks * (role.resources.charged_cpu_millis or 0)
                memory += tasks * (role.resources.memory_bytes or 0)
                gpus += tasks * role.resources.gpus
        if (after := page.next) is None:
            return Used(jobs, cpu, memory, gpus)


def used_by_services(store: StateStore, org: str) -> Used:
    """What the replicas of an organisation's model services were given; ``jobs`` counts the
    services.
    """
    return replace(measure_use(store, org, REPLICA), jobs=len(services(store, org)))


def services(store: StateStore, org: str) -> list[Summary]:
    """The services of an organisation that are to answer, without those that failed."""
    resting = {ServicePhase.SAVED.value, ServicePhase.STOPPED.value, ServicePhase.FAILED.value}
    found: list[Summary] = []
    after: int | None = None
    while True:
        page = store.list(MODEL_SERVICE, org=org, after=after, limit=1000)
        found += [line for line in page.items if line.index not in resting]
        if (after := page.next) is None:
            return found


def together(one: Used, other: Used) -> Used:
    """The sum."""
    return Used(*(getattr(one, each.name) + getattr(other, each.name) for each in fields(Used)))


def free(capacity: Capacity, taken: Used) -> Capacity:
    """What is left; never below zero, since limits may promise more than there is."""
    return Capacity(
        cpu_millis=max(0, capacity.cpu_millis - taken.cpu_millis),
        memory_bytes=max(0, capacity.memory_bytes - taken.memory_bytes),
        gpus=max(0, capacity.gpus - taken.gpus),
    )

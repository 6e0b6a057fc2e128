"""How much an organisation may have running at once, and whether a job fits into it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.records import Kind
from cloud_ml.domain.tenancy import StandingStatus
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.models.common import format_memory

UNLIMITED = -1
_NAMES: Mapping[str, tuple[str, str]] = {
    "cpu_millis": ("cpu_limit", "cpu"),
    "memory_bytes": ("memory_limit", "memory"),
    "gpus": ("gpu_limit", "GPUs"),
    "count": ("job_name", "jobs at once"),
}
"""Resource → the field of a job that asks for it, and its word in sentences."""


_SCOPES: Mapping[str, str] = {
    "train": "train jobs",
    "model": "model services",
    "tensorboard": "TensorBoards",
}
ASKERS: Mapping[str, str] = {"train": "job", "model": "replica", "tensorboard": "TensorBoard"}
"""What asks for a place, by the kind of work."""
_ALL = "all work together"
_OPTIONS: Mapping[str, str] = {
    "cpu_millis": "--cpu CORES",
    "memory_bytes": "--memory SIZE",
    "gpus": "--gpu COUNT",
    "count": "--count COUNT",
}


@dataclass(frozen=True)
class Limits:
    """Most of each resource. ``None``: as the operator has set for everybody; ``UNLIMITED``: no
    limit.
    """

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    count: int | None = None


@dataclass(frozen=True)
class QuotaSpec:
    """The limits of an organisation, whose name is the record's. ``total`` is for all kinds of work
    together.

    ``points`` are those of metrics that all runs keep.

    ``notes`` are words of the original wire (ranks of priority, a project) that are kept and shown,
    no more.
    """

    train: Limits = Limits()
    model: Limits = Limits()
    dev: Limits = Limits()
    total: Limits = Limits()
    tensorboards: int | None = None
    storage_bytes: int | None = None
    points: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def lets_all_start(self) -> bool:
        """Whether no work waits for the quota, whatever it asks for and what else runs: the usual
        case. Worked out once, as the line of jobs asks several times for each job.
        """
        limits = [self.train, self.model, self.dev, self.total, Limits(count=self.tensorboards)]
        return all(
            getattr(each, resource) in (None, UNLIMITED) for each in limits for resource in _NAMES
        )


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is asked for, or used. ``None`` where a job names no limit: nobody knows what it will
    take.
    """

    cpu_millis: int | None = 0
    memory_bytes: int | None = 0
    gpus: int | None = 0
    count: int | None = 0


NOTHING = Amounts()


@dataclass(frozen=True, slots=True)
class Excess:
    """A resource of which there is too little. ``requested`` is ``None`` where a job should say
    what it takes.

    ``who`` asks: a job, or a replica of a model service.
    """

    scope: str
    resource: str
    requested: int | None
    used: int
    limit: int
    who: str = "job"

    @property
    def field(self) -> str:
        """The field of a job that asks for it."""
        return _NAMES[self.resource][0]

    @property
    def allowed(self) -> str:
        """What would be taken, in words."""
        return f"at most {format_amount(self.resource, self.limit)}" + (
            ", said explicitly" if self.requested is None else ""
        )

    @property
    def can_be_applied_for(self) -> bool:
        """Whether an owner may apply for more; of all work together and of numbers nobody can."""
        return self.scope != _ALL and self.resource != "count"

    @property
    def of_all_work(self) -> bool:
        """Whether the limit is that of all work together."""
        return self.scope == _ALL

    @property
    def option(self) -> str:
        """The option of ``quota update`` and ``admin quota set`` for more of it."""
        return _OPTIONS[self.resource]

    def sentence(self) -> str:
        """Such as
        ``the quota of cpu for train jobs: 3 of 4 cores are used, the job asks for 2``.
        """
        if self.requested is None:
            return self.limit_sentence()
        what = f"the quota of {_NAMES[self.resource][1]} for {self.scope}"
        if self.resource == "count":
            return f"{what}: {self.used} of {self.limit} are running"
        used, limit, requested = (
            format_amount(self.resource, amount)
            for amount in (self.used, self.limit, self.requested)
        )
        return f"{what}: {used} of {limit} are used, the {self.who} asks for {requested}"

    def limit_sentence(self) -> str:
        """Such as ``the quota of cpu for train jobs is 1 core, and the job asks for 2 cores``:
        true whatever else runs.
        """
        limit = format_amount(self.resource, self.limit)
        what = f"the quota of {_NAMES[self.resource][1]} for {self.scope} is {limit}"
        if self.requested is None:
            return f"{what}, so a {self.who} has to name its {self.field} (--{self.field})"
        if self.resource == "count":
            return what
        requested = format_amount(self.resource, self.requested)
        return f"{what}, and the {self.who} asks for {requested}"


def requested_amounts(spec: WorkloadSpec) -> Amounts:
    """What a workload asks for, over all tasks that live at a time."""
    cpu_millis: int | None = 0
    memory_bytes: int | None = 0
    gpus = 0
    for role in spec.roles:
        replicas, one = spec.at_once(role), role.resources
        cpu_millis = _add(cpu_millis, replicas, one.charged_cpu_millis)
        memory_bytes = _add(memory_bytes, replicas, one.memory_bytes)
        gpus += replicas * one.gpus
    return Amounts(cpu_millis, memory_bytes, gpus, count=1)


def _add(total: int | None, replicas: int, amount: int | None) -> int | None:
    """The sum with so many replicas; ``None`` if one of the amounts is not known."""
    return None if total is None or amount is None else total + replicas * amount


def together(amounts: Sequence[Amounts]) -> Amounts:
    """The sum; what nobody named counts as nothing."""
    cpu_millis = memory_bytes = gpus = count = 0
    for amount in amounts:  # once for all four: this is asked some twenty times for each job
        cpu_millis += amount.cpu_millis or 0
        memory_bytes += amount.memory_bytes or 0
        gpus += amount.gpus or 0
        count += amount.count or 0
    return Amounts(cpu_millis, memory_bytes, gpus, count)


def excess(
    quota: QuotaSpec,
    requested: Amounts,
    used: Amounts = NOTHING,
    *,
    elsewhere: Amounts = NOTHING,
    kind: str = "train",
) -> Sequence[Excess]:
    """What keeps work from starting beside what runs; beside nothing: what keeps it out for ever.

    What asks for none of a resource is not kept by it, even where more is used than a lowered limit
    allows.

    Args:
        quota: The organisation's, resolved.
        requested: What is asked for.
        used: What the organisation's active work of this kind was given.
        elsewhere: And its work of other kinds, which counts for the limits of all together.
        kind: ``train``; ``tensorboard``; or ``model`` for a replica of a model service. Services
            are counted where they are made.
    """
    found: list[Excess] = []
    if quota.lets_all_start:
        return found
    model = kind == "model"
    scopes = [
        (_SCOPES[kind], _limits_of(quota, kind), used),
        (_ALL, quota.total, together([used, elsewhere])),
    ]
    for scope, limits, there in scopes:
        for resource in _NAMES:
            if resource == "count" and model:
                continue
            limit, request = getattr(limits, resource), getattr(requested, resource)
            taken = getattr(there, resource) or 0
            if limit in (None, UNLIMITED) or request == 0:
                continue
            if request is None or taken + request > limit:
                found.append(Excess(scope, resource, request, taken, limit, ASKERS[kind]))
    return found


def _limits_of(quota: QuotaSpec, kind: str) -> Limits:
    """The limits of one kind of work. TensorBoards have a number only."""
    if kind == "tensorboard":
        return Limits(count=quota.tensorboards)
    return quota.model if kind == "model" else quota.train


def resolve(quota: QuotaSpec, defaults: QuotaSpec) -> QuotaSpec:
    """The quota with the operator's values where it has none."""

    def limits(own: Limits, default: Limits) -> Limits:
        merged = {name: _either(getattr(own, name), getattr(default, name)) for name in _NAMES}
        return replace(own, **merged)

    return replace(
        quota,
        train=limits(quota.train, defaults.train),
        model=limits(quota.model, defaults.model),
        dev=limits(quota.dev, defaults.dev),
        total=limits(quota.total, defaults.total),
        tensorboards=_either(quota.tensorboards, defaults.tensorboards),
        storage_bytes=_either(quota.storage_bytes, defaults.storage_bytes),
        points=_either(quota.points, defaults.points),
    )


def _either(own: int | None, default: int | None) -> int:
    value = own if own is not None else default
    return UNLIMITED if value is None else value


def format_amount(resource: str, amount: int) -> str:
    """An amount as people write it."""
    if amount == UNLIMITED:
        return "unlimited"
    if resource == "cpu_millis":
        return f"{amount / 1000:g} cores" if amount != 1000 else "1 core"
    return format_memory(amount) if resource.endswith("bytes") else str(amount)


class Decision(StrEnum):
    """What became of an application."""

    OPEN = "open"
    APPROVED = "approved"
    DECLINED = "declined"


@dataclass(frozen=True)
class ApplicationSpec:
    """Somebody asks for other limits. The record's organisation is the one that asks. ``None``
    stays as it is.
    """

    service: str
    cpu_millis: int | None
    memory_bytes: int | None
    gpus: int | None
    user: str
    mail: str = ""
    decision: Decision = Decision.OPEN
    decided_by: str = ""
    decided_at: datetime | None = None


QUOTA: Kind[QuotaSpec, StandingStatus] = Kind("quota", QuotaSpec, StandingStatus)
APPLICATION: Kind[ApplicationSpec, StandingStatus] = Kind(
    "quota_application", ApplicationSpec, StandingStatus
)

QuotaOf = Callable[[str], QuotaSpec]
"""Organisation → its quota, resolved."""

"""Quotas over HTTP: what an organisation may have at once, what it has, and applications for more.

Amounts of cpu are cores, of memory and storage bytes; ``None`` stands for no limit. A limit to be
set is text: an amount such as ``4``, ``16G``; ``unlimited``; or ``default``, which is what the
operator set for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from cloud_ml.models import suggestions
from cloud_ml.models.common import memory_bytes, refuse

KINDS = ("train", "model", "dev", "total")
"""Kinds of work with limits of their own, and all of them together."""
SERVICES = ("jobs", "models", "dev")
"""What applications are for, in the words of the original client."""
UNLIMITED = -1
_TOO_MUCH = 2**63
_CPU = re.compile(r"[0-9]{1,6}(\.[0-9]{1,2})?")
_SIZE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,2})?[KMG]")
_COUNT = re.compile(r"[0-9]{1,9}")
_POINTS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, kw_only=True)
class QuotaLine:
    """A kind of work: limits, and what the jobs that hold a place were given."""

    kind: str
    cpu_limit: float | None = None
    cpu_used: float = 0.0
    memory_limit: int | None = None
    memory_used: int = 0
    gpu_limit: int | None = None
    gpu_used: int = 0
    count_limit: int | None = None
    count_used: int = 0


@dataclass(frozen=True, kw_only=True)
class OrgQuota:
    """An organisation's quota. ``storage_used`` is ``None`` where it was not counted: in lists.

    ``points_used`` are the points of metrics that its runs keep.
    """

    org: str
    org_id: str
    items: list[QuotaLine]
    storage_limit: int | None = None
    storage_used: int | None = None
    points_limit: int | None = None
    points_used: int = 0


@dataclass(frozen=True, kw_only=True)
class QuotaPage:
    """Quotas, by organisation."""

    items: list[OrgQuota]


@dataclass(frozen=True, kw_only=True)
class LimitsChange:
    """Limits to be set; what is left out stays."""

    cpu: str | None = None
    memory: str | None = None
    gpu: str | None = None
    count: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuotaChange:
    """Limits of an organisation to be set; what is left out stays."""

    train: LimitsChange = field(default_factory=LimitsChange)
    model: LimitsChange = field(default_factory=LimitsChange)
    dev: LimitsChange = field(default_factory=LimitsChange)
    total: LimitsChange = field(default_factory=LimitsChange)
    storage: str | None = None
    points: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewApplication:
    """An organisation asks for other limits for a kind of work (``jobs``, ``models`` or ``dev``).

    What is left out stays; at least one amount is given.
    """

    service: str
    cpu: str | None = None
    memory: str | None = None
    gpu: str | None = None
    mail: str = ""


@dataclass(frozen=True, kw_only=True)
class Application:
    """An application and what became of it: ``open``, ``approved`` or ``declined``. Amounts that
    are null stay.
    """

    id: str
    org: str
    user: str
    service: str
    cpu: float | None
    memory: int | None
    gpu: int | None
    mail: str
    state: str
    created_at: datetime
    decided_by: str = ""
    decided_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ApplicationPage:
    """Applications, newest first."""

    items: list[Application]


def limit_of(field: str, resource: str, text: str) -> int | None:
    """A limit as it is stored: an amount, ``UNLIMITED``, or ``None`` for the default.

    Args:
        field: How a refusal calls it.
        resource: ``cpu``, ``memory``, ``gpu``, ``count``, ``storage`` or ``points``.
        text: What was given.

    Raises:
        InvalidRequest: It is none.
    """
    if text == "default":
        return None
    if text == "unlimited":
        return UNLIMITED
    if resource == "cpu":
        allowed = "cores such as 4 or 0.5"
        amount = int(Decimal(_matching(field, text, _CPU, allowed, suggestions.cpu)) * 1000)
    elif resource in ("memory", "storage"):
        allowed = "a number followed by K, M or G, such as 16G"
        amount = memory_bytes(_matching(field, text, _SIZE, allowed, suggestions.memory))
    else:
        pattern = _POINTS if resource == "points" else _COUNT
        amount = int(_matching(field, text, pattern, "a whole number"))
    if amount >= _TOO_MUCH:
        raise refuse(field, text, "an amount that a machine could have; or unlimited, or default")
    return amount


def _matching(
    field: str,
    text: str,
    pattern: re.Pattern[str],
    allowed: str,
    suggest: Callable[[Any], str] = lambda text: "",
) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        allowed = f"{allowed}; or unlimited, or default"
        raise refuse(field, text, allowed, suggestion=suggest(text))
    return text

"""The quota document of the original wire: nothing but strings, which its client joins; and
changes of it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cloud_ml.domain.quotas import UNLIMITED, QuotaSpec
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.admin.quota import NewApplication, limit_of
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.usage import Used, together

_UNITS = (("G", 2**30), ("M", 2**20))
_NO_LIMIT = {"memory": "-1.0K", "cpu": "-1.0", "gpu": "-1", "count": "-1"}
"""What its client shows as INF, in the totals and in the counts."""
_KINDS = ("train", "model", "dev", "total")
_RANKS = ("1", "2", "3")
_NOTHING = Used()


def row(
    organisation: Organisation,
    capacity: Capacity,
    used: Used,
    quota: QuotaSpec,
    models: Used = _NOTHING,
    *,
    boards: Used = _NOTHING,
) -> dict[str, str]:
    """An organisation's quota. Where train jobs and model services have no limit, they may use what
    the server has.

    Of development environments there are none yet, hence 0 where no limit is set.
    """
    # Its client reads the mail address when it applies for more, and dies without one.
    document = {
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "org_mail": organisation.mail,
    }
    for prefix, limits, otherwise, taken in (
        ("train", quota.train, capacity, used),
        ("model", quota.model, capacity, models),
        ("dev", quota.dev, Capacity(0, 0), _NOTHING),
    ):
        document |= {
            f"{prefix}_memory_quota": memory(_set(limits.memory_bytes, otherwise.memory_bytes)),
            f"{prefix}_cpu_quota": _cores(_set(limits.cpu_millis, otherwise.cpu_millis)),
            f"{prefix}_gpu_quota": str(_set(limits.gpus, otherwise.gpus)),
            f"{prefix}_count_quota": str(_set(limits.count, 0 if prefix == "dev" else UNLIMITED)),
            **_usage_fields(prefix, taken),
            f"{prefix}_count_used": str(taken.jobs),
        }
    total = quota.total
    document |= {
        "tensorboard_quota": str(_set(quota.tensorboards, 0)),
        "tensorboard_used": str(boards.jobs),
        **_usage_fields("total", together(together(used, models), boards)),
        "total_memory_quota": _or_none("memory", total.memory_bytes, memory),
        "total_cpu_quota": _or_none("cpu", total.cpu_millis, _cores),
        "total_gpu_quota": _or_none("gpu", total.gpus, str),
    }
    return {**document, **quota.notes}


def mail_in(body: bytes) -> str:
    """The mail address in the body of a question; empty if there is none to be read."""
    try:
        mail = json.loads(body)["org_mail"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return mail[:254] if isinstance(mail, str) and mail.isascii() and mail.isprintable() else ""


def change_quota(spec: QuotaSpec, document: Mapping[str, Any]) -> QuotaSpec:
    """The quota with what a PUT of the administrator's tool says.

    Raises:
        InvalidRequest: A field is none of the quota's, or its value is wrong.
    """
    notes = dict(spec.notes)
    limits: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
    tensorboards = spec.tensorboards
    for name, value in document.items():
        kind, _, rest = name.partition("_")
        if name in ("org_id", "org_name", "org_mail"):
            continue  # whom it is about: seen to by the route
        if name == "tensorboard_quota":
            tensorboards = _limit(name, "count", value)
        elif kind in _KINDS and rest in _FIELDS:
            attribute, resource = _FIELDS[rest]
            limits[kind][attribute] = _limit(
                name, resource, value, least=1 if name == "train_count_quota" else 0
            )
        elif rest == "priority_rank" and kind in (*_KINDS, "tensorboard"):
            if str(value) not in _RANKS:
                raise common.refuse(name, value, "1, 2 or 3")
            notes[name] = str(value)
        elif rest == "priority_quota" and kind in (*_KINDS, "tensorboard"):
            notes[name] = str(common.check_count(name, value, least=0, most=10**9))
            notes.setdefault(f"{kind}_priority_used", "0")
        elif name == "project":
            notes[name] = common.check_text(name, value, limit=254, allow_empty=True)
        else:
            raise common.refuse(name[:80], value, "a field of the quota, such as train_cpu_quota")
    return replace(
        spec,
        train=replace(spec.train, **limits["train"]),
        model=replace(spec.model, **limits["model"]),
        dev=replace(spec.dev, **limits["dev"]),
        total=replace(spec.total, **limits["total"]),
        tensorboards=tensorboards,
        notes=notes,
    )


def application(document: Mapping[str, Any]) -> NewApplication:
    """What ``quota update`` of the original client asks for.

    Its version 0.3.71 sends the figure of the cpu as ``gpu_limit``, so a part of a GPU may be asked
    for: it is taken for the whole ones in it.

    Raises:
        InvalidRequest: A field is missing.
    """
    for name in ("service", "cpu_limit", "memory_limit", "gpu_limit"):
        if document.get(name) in (None, ""):
            raise InvalidRequest(f"{name} is missing", field=name, allowed="a value is required")
    return NewApplication(
        service=str(document["service"])[:20],
        cpu=str(document["cpu_limit"])[:20],
        memory=str(document["memory_limit"])[:20],
        gpu=str(document["gpu_limit"])[:20].partition(".")[0],
        mail=str(document.get("org_mail") or ""),
    )


_FIELDS = {
    "memory_quota": ("memory_bytes", "memory"),
    "cpu_quota": ("cpu_millis", "cpu"),
    "gpu_quota": ("gpus", "gpu"),
    "count_quota": ("count", "count"),
}


def _limit(name: str, resource: str, value: Any, *, least: int = 0) -> int:
    text = (
        str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    )
    # Also as its client shows it: ``-1.0`` and ``-1.0K``.
    if text.startswith("-1") or text == "INF":
        return UNLIMITED
    limit = limit_of(name, resource, text)
    if limit is None or limit < least:
        raise common.refuse(name, value, f"an amount from {least} up, or -1 for no limit")
    return limit


def _set(limit: int | None, otherwise: int) -> int:
    return otherwise if limit in (None, UNLIMITED) else int(limit or 0)


def _or_none(resource: str, limit: int | None, write: Callable[[int], str]) -> str:
    return _NO_LIMIT[resource] if limit in (None, UNLIMITED) else write(limit or 0)


def resources_row(free: Capacity) -> dict[str, Any]:
    """The size of the largest job that would start now."""
    return {
        "available_cpu": free.cpu_millis / 1000,
        "available_mem": memory(free.memory_bytes),
        "available_gpu": free.gpus,
    }


def memory(count: int) -> str:
    """Number and unit as the original writes them: ``10.0G``, ``300.0M``, ``0.0K``."""
    for unit, size in _UNITS:
        if count >= size:
            return f"{round(count / size, 2)}{unit}"
    return f"{round(count / 1024, 2)}K"


def _usage_fields(prefix: str, used: Used) -> dict[str, str]:
    return {
        f"{prefix}_memory_used": memory(used.memory_bytes),
        f"{prefix}_cpu_used": _cores(used.cpu_millis),
        f"{prefix}_gpu_used": str(used.gpus),
    }


def _cores(millis: int) -> str:
    return str(millis / 1000)

"""The quota document of the original wire: nothing but strings, which its client joins. Pure."""

from __future__ import annotations

from typing import Any

from cloud_ml.engines.base import Capacity
from cloud_ml.usecases.identities import Organisation
from cloud_ml.usecases.usage import Used

_UNITS = (("G", 2**30), ("M", 2**20))
_NO_LIMIT = {
    "total_memory_quota": "-1.0K",
    "total_cpu_quota": "-1.0",
    "total_gpu_quota": "-1",
    "train_count_quota": "-1",
    "model_count_quota": "0",
    "dev_count_quota": "0",
}
"""What its client shows as INF. Of models and development environments there are none yet."""


def row(organisation: Organisation, capacity: Capacity, used: Used) -> dict[str, str]:
    """An organisation's quota: train jobs may use what the server has, and no limit is set beside that."""
    none = Used()
    document = {"org_id": str(organisation.number), "org_name": organisation.name}
    if organisation.mail:
        document["org_mail"] = organisation.mail
    for prefix, limit, taken in (
        ("train", capacity, used),
        ("model", Capacity(0, 0), none),
        ("dev", Capacity(0, 0), none),
    ):
        document |= {
            f"{prefix}_memory_quota": memory(limit.memory_bytes),
            f"{prefix}_cpu_quota": _cores(limit.cpu_millis),
            f"{prefix}_gpu_quota": str(limit.gpus),
            **_used(prefix, taken),
            f"{prefix}_count_used": str(taken.jobs),
        }
    document |= {"tensorboard_quota": "0", "tensorboard_used": "0", **_used("total", used), **_NO_LIMIT}
    return document


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


def _used(prefix: str, used: Used) -> dict[str, str]:
    return {
        f"{prefix}_memory_used": memory(used.memory_bytes),
        f"{prefix}_cpu_used": _cores(used.cpu_millis),
        f"{prefix}_gpu_used": str(used.gpus),
    }


def _cores(millis: int) -> str:
    return str(millis / 1000)

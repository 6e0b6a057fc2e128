"""Services and their replicas in words and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloud_ml.cli import figures

if TYPE_CHECKING:
    from cloud_ml.models.service import ModelTensor, Service, ServiceMetrics


def service_line(service: Service) -> str:
    """Where a service stands, in one line."""
    phase = "Deleting" if service.deleting else service.phase
    what = f"{phase} · {service.ready} of {service.wanted} replicas answer"
    waiting = next((one for one in service.replicas if one.current and not one.ready), None)
    if service.message and not service.settled:
        what += f" · {service.message}"
    elif waiting is not None:
        what += f" · replica {waiting.number} is {waiting.phase}" + (f": {waiting.message}" if waiting.message else "")
    return f"{service.name} {service.version}: {what}"


def metrics_rows(found: ServiceMetrics) -> list[Sequence[str]]:
    """A row for each replica; a dash for what is not known yet."""
    return [
        (
            str(one.number),
            one.phase,
            "-" if one.cores is None else f"{one.cores:.0%}",
            "-" if one.memory_bytes is None else figures.size(one.memory_bytes),
            "-" if one.memory_limit_bytes is None else figures.size(one.memory_limit_bytes),
            "-" if one.requests is None else str(one.requests),
            "-" if one.errors is None else str(one.errors),
            f"{1000 * one.seconds / one.requests:.2f} ms" if one.requests and one.seconds is not None else "-",
        )
        for one in found.items
    ]


def tensor_text(tensor: ModelTensor) -> str:
    """An input or an output, such as ``X: float32 [?, 1]``."""
    if tensor.shape is None:
        return f"{tensor.name}: {tensor.dtype}, any shape"
    return f"{tensor.name}: {tensor.dtype} [{', '.join('?' if size < 0 else str(size) for size in tensor.shape)}]"

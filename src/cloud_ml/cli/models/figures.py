"""Services and their replicas in words and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures

if TYPE_CHECKING:
    from cloud_ml.models.services.service import (
        CallMetrics,
        ModelTensor,
        Replica,
        Service,
        ServiceCandidate,
        ServiceMetrics,
    )


def service_line(service: Service) -> str:
    """Where a service stands, in one line."""
    phase = "Deleting" if service.deleting else service.phase
    what = f"{phase} · {service.ready} of {service.wanted} replicas answer"
    waiting = next((one for one in service.replicas if one.current and not one.ready), None)
    if service.message and not service.settled:
        what += f" · {service.message}"
    elif waiting is not None:
        what += f" · replica {waiting.number}: {replica_state(waiting)}" + (
            f": {waiting.message}" if waiting.message else ""
        )
    if (tried := service.candidate) is not None and not tried.settled:
        what += f" · candidate: {candidate_line(tried)}"
    return f"{service.name} {service.version}: {what}"


def replica_state(replica: Replica) -> str:
    """Where a replica stands: one whose process runs answers, loads its model, or has given that
    up.
    """
    if replica.ready:
        return "answers"
    if replica.given_up:
        return "Failed"
    return "Loading" if replica.phase == "Running" else replica.phase


def metrics_rows(found: ServiceMetrics) -> list[Sequence[str]]:
    """A row for each replica; a dash for what is not known yet."""
    return [
        (
            str(one.number),
            one.phase,
            str(one.release or "-"),
            "-" if one.cores is None else f"{one.cores:.0%}",
            "-" if one.memory_bytes is None else figures.size(one.memory_bytes),
            "-" if one.memory_limit_bytes is None else figures.size(one.memory_limit_bytes),
            "-" if one.requests is None else str(one.requests),
            "-" if one.errors is None else str(one.errors),
            f"{1000 * one.seconds / one.requests:.2f} ms"
            if one.requests and one.seconds is not None
            else "-",
        )
        for one in found.items
    ]


def release_rows(found: ServiceMetrics) -> list[Sequence[str]]:
    """A row for each release, as callers saw it."""
    return [
        (
            str(one.release),
            "candidate"
            if one.candidate
            else "stable"
            if one is found.releases[0]
            else "is being replaced",
            f"{one.share} %" if one.wanted else "-",
            f"{one.ready} of {one.wanted}" if one.wanted else "-",
            "-" if one.requests is None else str(one.requests),
            "-" if one.errors is None else str(one.errors),
            f"{1000 * one.seconds / one.requests:.2f} ms"
            if one.requests and one.seconds is not None
            else "-",
        )
        for one in found.releases
    ]


def calls_line(calls: CallMetrics) -> str:
    """What the gateway says of a service, in a line."""
    return (
        f"{calls.requests} calls since the gateway began: {calls.failed} failed, "
        f"{calls.refused} refused, "
        f"{calls.retried} tried again; {calls.in_flight} under way, {calls.waiting} waiting"
    )


def candidate_line(candidate: ServiceCandidate) -> str:
    """Where a candidate stands, in a line."""
    what = f"release {candidate.release}, {candidate.share} % of calls · {candidate.phase}"
    if candidate.wanted:
        what += f" · {candidate.ready} of {candidate.wanted} replicas answer"
    return what + (f" · {candidate.message}" if candidate.message and not candidate.ready else "")


def tensor_text(tensor: ModelTensor) -> str:
    """An input or an output, such as ``X: float32 [?, 1]``."""
    if tensor.shape is None:
        return f"{tensor.name}: {tensor.dtype}, any shape"
    return f"{tensor.name}: {tensor.dtype} [{', '.join('?' if size < 0 else str(size) for size in tensor.shape)}]"

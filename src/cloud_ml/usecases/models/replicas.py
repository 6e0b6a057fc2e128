"""What the replicas of a service use, say and can be asked. They live like jobs, and are looked
at like jobs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_ml.domain.services.kind import ReplicaRecord, ServiceRecord
from cloud_ml.domain.services.routes import Answered, Figures
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.engines.base import Engine
from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.models.common import refuse
from cloud_ml.models.services.service import (
    CallMetrics,
    ModelSignature,
    ModelTensor,
    ReleaseMetrics,
    ReplicaMetrics,
    ServiceMetrics,
    ServiceSignatures,
)
from cloud_ml.usecases.jobs.tasks import tasks_of
from cloud_ml.usecases.models.replica_requests import ask

_SAMPLE = re.compile(
    r"^cloudml_serving_(requests_total|refused_total|request_seconds_sum)(\{[^}]*\})? ([-+.\deE]+)$"
)
_TYPES: Mapping[str, str] = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INT32": "int32",
    "DT_UINT8": "uint8",
    "DT_INT16": "int16",
    "DT_INT8": "int8",
    "DT_STRING": "string",
    "DT_INT64": "int64",
    "DT_BOOL": "bool",
    "DT_BFLOAT16": "bfloat16",
    "DT_UINT16": "uint16",
    "DT_HALF": "float16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
}
"""Types by their names in the answers of model servers."""
_OF_CALLS = ("requests", "failed", "refused", "retried", "in_flight", "waiting")
_MOST = 1e15
ANSWER_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading the answer of a replica may end in that is no model server of ours."""


@dataclass(frozen=True)
class Replicas:
    """The replicas of a service: those there are, the oldest first, and those that have ended,
    the latest last.
    """

    items: Sequence[ReplicaRecord] = ()
    ended: Sequence[ReplicaRecord] = ()

    @property
    def default(self) -> Sequence[ReplicaRecord]:
        """Those whose output is meant where none is named: those there are, else the one that
        ended last.
        """
        return self.items or self.ended[-1:]


def sorted_out(records: Iterable[ReplicaRecord]) -> Replicas:
    """Replicas of a service, told apart by whether they have ended as they were asked to."""
    items: list[ReplicaRecord] = []
    ended: list[ReplicaRecord] = []
    for one in records:
        (ended if one.status.phase.terminal and _is_ending(one) else items).append(one)
    items.sort(key=lambda one: one.created_at)
    ended.sort(key=lambda one: (one.status.finished_at or one.updated_at, number_of(one)))
    return Replicas(items, ended)


def _is_ending(replica: ReplicaRecord) -> bool:
    return (
        replica.spec.workload.desired is Desired.STOPPED or replica.delete_requested_at is not None
    )


def number_of(replica: ReplicaRecord) -> int:
    """The number of a replica, which no other of its service ever has."""
    return int(replica.key.name.rpartition("-")[2])


def release_of(replica: ReplicaRecord) -> int:
    """The number of what a replica was made of."""
    return replica.spec.template


def chosen(
    service: ServiceRecord, replicas: Replicas, number: int | None = None, *, previous: bool = False
) -> ReplicaRecord:
    """The replica of that number, or with ``previous`` the one that ended last.

    Of neither, one that is not about to be replaced, and runs if one does; where there is none, the
    one that ended last.

    Raises:
        InvalidRequest: There is none of that number, or none at all.
    """
    if previous and number is not None:
        raise refuse("previous", "true", "nothing together with replica")
    matching = replicas.ended[-1:] if previous else replicas.default
    if number is not None:
        matching = [one for one in (*replicas.items, *replicas.ended) if number_of(one) == number]
    if not matching:
        what = (
            f"replica is {number}; there is no such replica"
            if number is not None
            else "there is no replica now"
        )
        what = "no replica has ended" if previous else what
        raise InvalidRequest(
            f"{what} of {service.key.name}",
            field="previous" if previous else "replica",
            value=number,
            allowed=_numbers(replicas),
        )
    return min(
        matching,
        key=lambda one: (not _is_current(service, one), one.status.phase is not Phase.RUNNING),
    )


def _numbers(replicas: Replicas) -> str:
    there = (
        ", ".join(str(number_of(one)) for one in replicas.items)
        or "none: the service has no replica now"
    )
    ended = ", ".join(str(number_of(one)) for one in replicas.ended)
    return f"{there}; of those that have ended {ended}" if ended else there


async def metrics_of(
    service: ServiceRecord,
    replicas: Sequence[ReplicaRecord],
    engine: Engine,
    figures: Figures | None = None,
) -> ServiceMetrics:
    """What replicas use and were asked; ``figures`` are those of the gateway, where they are
    known.
    """
    return ServiceMetrics(
        items=list(await asyncio.gather(*(_metrics(one, engine) for one in replicas))),
        releases=releases_of(service, figures),
        calls=None
        if figures is None
        else CallMetrics(**{name: getattr(figures, name) for name in _OF_CALLS}),
    )


def releases_of(service: ServiceRecord, figures: Figures | None) -> list[ReleaseMetrics]:
    """What was asked of each release: the stable one, the candidate, then those that are being
    replaced.
    """
    spec, status, stands = service.spec, service.status, service.status.candidate
    counted = figures.releases if figures is not None else {}
    tried = spec.candidate
    share = tried.share if tried is not None and stands is not None and stands.ready else 0
    found = [_release(spec.template, counted, figures, share=100 - share, ready=status.ready,
                      wanted=replicas_of(spec, status))]  # fmt: skip
    if tried is not None:
        found.append(
            _release(
                tried.template,
                counted,
                figures,
                candidate=True,
                share=share,
                ready=stands.ready if stands is not None else 0,
                wanted=candidates_of(spec, status),
            )
        )
    named = {each.release for each in found}
    others = sorted(
        int(number) for number in counted if number.isdigit() and int(number) not in named
    )
    return [*found, *(_release(number, counted, figures) for number in others)]


def _release(
    number: int, counted: Mapping[str, Answered], figures: Figures | None, **more: Any
) -> ReleaseMetrics:
    if figures is None:
        return ReleaseMetrics(release=number, **more)
    one = counted.get(str(number), Answered())
    return ReleaseMetrics(
        release=number, requests=one.requests, errors=one.errors, seconds=one.seconds, **more
    )


async def signatures_of(
    service: ServiceRecord,
    replicas: Sequence[ReplicaRecord],
    engine: Engine,
    release: int | None = None,
) -> ServiceSignatures:
    """What the model can be asked, as one of the replicas tells; only of that ``release`` where one
    is given.

    Raises:
        Unavailable: None of them answers now.
    """
    running = [one for one in replicas if one.status.phase is Phase.RUNNING]
    if release is not None:
        running = [one for one in running if release_of(one) == release]
    running.sort(key=lambda one: (not _is_current(service, one), number_of(one)))
    if isinstance(engine, Endpoints):
        for replica in running:
            try:
                answer = await ask(
                    engine,
                    replica.key.uid,
                    f"/v1/models/{service.spec.submitted.model_name}/metadata",
                )
                return _signatures(json.loads(answer))
            except (Unavailable, *ANSWER_ERRORS):
                continue
    raise Unavailable(
        f"no replica of {service.key.name} answers now: the service is {service.status.phase}",
        field="model_name", value=service.spec.submitted.model_name,
    )  # fmt: skip


def _is_current(service: ServiceRecord, replica: ReplicaRecord) -> bool:
    return release_of(replica) == service.spec.template


async def _metrics(replica: ReplicaRecord, engine: Engine) -> ReplicaMetrics:
    tasks = await tasks_of(replica, engine)
    task = next((one for one in tasks.items if one.running), None)
    counted: dict[str, float] = {}
    if replica.status.phase is Phase.RUNNING and isinstance(engine, Endpoints):
        try:
            counted = _sum_figures(
                (await ask(engine, replica.key.uid, "/metrics")).decode("utf-8", "replace")
            )
        except Unavailable:
            counted = {}
    used: dict[str, Any] = {}
    if task is not None:
        names = (
            "cores",
            "cpu_limit",
            "memory_bytes",
            "memory_peak_bytes",
            "memory_limit_bytes",
            "processes",
        )
        used = {name: getattr(task, name) for name in names}
    return ReplicaMetrics(
        number=number_of(replica),
        uid=replica.key.uid,
        phase=replica.status.phase.value,
        attempt=replica.status.attempt,
        requests=int(counted["requests"]) if counted else None,
        errors=int(counted["errors"]) if counted else None,
        seconds=counted["seconds"] if counted else None,
        release=release_of(replica),
        **used,
    )


def _sum_figures(text: str) -> dict[str, float]:
    """Sums over models, signatures and protocols, from what the model server tells to
    Prometheus.
    """
    sums = {"requests": 0.0, "errors": 0.0, "seconds": 0.0}
    for line in text.splitlines():
        if (found := _SAMPLE.match(line)) is None:
            continue
        kind, labels, value = found[1], found[2] or "", _figure(found[3])
        if kind == "request_seconds_sum":
            sums["seconds"] += value
            continue
        sums["requests"] += value
        if kind == "refused_total" or 'code="OK"' not in labels:
            sums["errors"] += value
    return sums


def _figure(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    # This also rejects NaN and infinity, which int() cannot convert.
    return value if 0 <= value < _MOST else 0.0


def _signatures(document: Any) -> ServiceSignatures:
    """Signatures from the metadata document of TensorFlow Serving's REST API."""
    found = document["metadata"]["signature_def"]["signature_def"]
    items = [
        ModelSignature(
            name=str(name)[:256],
            method=str(one.get("method_name", ""))[:256],
            inputs=_tensors(one.get("inputs") or {}),
            outputs=_tensors(one.get("outputs") or {}),
        )
        for name, one in found.items()
        # TensorFlow stores the model's initialisation op as a signature. It is not callable for
        # users.
        if name != "__saved_model_init_op"
    ]
    items.sort(key=lambda one: (one.name != "serving_default", one.name))
    return ServiceSignatures(number=int(document["model_spec"]["version"]), items=items)


def _tensors(found: Mapping[str, Any]) -> list[ModelTensor]:
    def tensor(name: str, tensor_info: Mapping[str, Any]) -> ModelTensor:
        shape = tensor_info.get("tensor_shape") or {}
        dims = (
            None
            if shape.get("unknown_rank")
            else [int(one["size"]) for one in shape.get("dim", ())]
        )
        return ModelTensor(
            name=name, dtype=_TYPES.get(tensor_info["dtype"], str(tensor_info["dtype"])), shape=dims
        )

    return [tensor(str(name), tensor_info) for name, tensor_info in found.items()]

"""The model server as a package that replicas run like any trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from cloud_ml.controller.programs.model_requirements import (
    ModelRequirements,
    nothing_at,
    requirements_of,
)
from cloud_ml.controller.programs.packages import is_used_again
from cloud_ml.controller.programs.wheels import store_wheel
from cloud_ml.domain.services.kind import ReplicaRecord
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.errors import NotFound
from cloud_ml.models.common import parse_object_uri
from cloud_ml.objects.base import ObjectStore
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.storage.objects import Storage

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("onnxruntime>=1.20", "tf2onnx>=1.16"),
    "python": ("onnxruntime>=1.20",),
    "scikit-learn": ("skops>=0.13",),
}
"""What a replica installs beside its framework and the model server's own needs."""
_NAME = "cloudml-model-server"
_ROOMS = ("net", "serving")


class ModelServers:
    """What replicas run: the model server, with the framework that the model needs now."""

    def __init__(
        self, objects: ObjectStore, storage: Storage, package: ModelServerPackage, offload: Offload
    ) -> None:
        self._objects = objects
        self._storage = storage
        self._package = package
        self._offload = offload

    async def provide(self, job: ReplicaRecord) -> tuple[ReplicaRecord, TrainerSource] | None:
        """The package, and the job with its framework; a ``problem`` where there is no model."""
        return await self._offload.long(job.key.org, self._provide, job)

    def forget(self, uid: str) -> None:
        """Nothing is under way for one of them."""

    async def tidy(self) -> None:
        """Packages are few and small."""

    def _provide(self, job: ReplicaRecord) -> tuple[ReplicaRecord, TrainerSource]:
        spec = job.spec
        uri = parse_object_uri("model_uri", spec.model_uri)
        program = spec.workload.program
        found, problem = None, f"{uri} has no model: there is no bucket {uri.bucket!r}"
        # Do not reveal names in a bucket of another organisation.
        if self._storage.owns(job.key.org, uri.bucket):
            with contextlib.suppress(NotFound):
                found = requirements_of(self._objects, uri, program.framework)
                problem = "" if found else nothing_at(self._objects, uri)
        if found is None:
            return job, TrainerSource("", _NAME, problem, Reason.MODEL_NOT_FOUND)
        workload = replace(spec.workload, program=replace(program, framework=found.framework))
        return replace(job, spec=spec.with_workload(workload)), self._package.source(found)


class ModelServerPackage:
    """Makes wheels of the model server, one for each set of requirements, in the folder of
    packages (see ``packages``). Safe from several threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[ModelRequirements, TrainerSource] = {}

    def source(self, required: ModelRequirements) -> TrainerSource:
        """The wheel that requires what a framework's models need, and the packages."""
        found = self._made.get(required)
        if found is None or not is_used_again(self._folder / found.digest / found.name):
            needed = _NEEDED.get(required.framework, ())
            requires = (*_own_needs(), *needed, *required.packages)
            found = self._made[required] = store_wheel(self._folder, _NAME, _ROOMS, requires)
        return found


def _own_needs() -> tuple[str, ...]:
    """What the extra ``serve`` asks for."""
    requirements = metadata.requires("cloud-ml") or []
    return tuple(
        each.partition(";")[0].strip()
        for each in requirements
        if "extra == 'serve'" in each.replace('"', "'")
    )

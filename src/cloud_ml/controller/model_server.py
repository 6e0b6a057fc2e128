"""The model server as a package that replicas run like any trainer."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path

import cloud_ml
from cloud_ml.controller.model_requirements import (
    ModelRequirements,
    nothing_at,
    requirements_of,
)
from cloud_ml.controller.packages import is_used_again
from cloud_ml.domain.services.kind import ReplicaRecord
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import TrainerSource
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
_EPOCH = (1980, 1, 1, 0, 0, 0)


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
        if self._storage.owns(
            job.key.org, uri.bucket
        ):  # names in the bucket of another are not told
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
            found = self._made[required] = self._make((*needed, *required.packages))
        return found

    def _make(self, needed: tuple[str, ...]) -> TrainerSource:
        content = _wheel((*_own_needs(), *needed))
        name = f"{_NAME.replace('-', '_')}-{cloud_ml.__version__}-py3-none-any.whl"
        digest = hashlib.sha256(content).hexdigest()
        target = self._folder / digest / name
        if not is_used_again(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(f".{name}.{id(content)}")
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # it is not made again while there is one
            draft.chmod(0o644)
            draft.replace(target)
        return TrainerSource(digest, name)


def _own_needs() -> tuple[str, ...]:
    """What the extra ``serve`` asks for."""
    asked = metadata.requires("cloud-ml") or []
    return tuple(
        each.partition(";")[0].strip()
        for each in asked
        if "extra == 'serve'" in each.replace('"', "'")
    )


def _wheel(needed: tuple[str, ...]) -> bytes:
    """The files of ``cloud_ml.serving`` and ``cloud_ml.net`` and no others of ours, with the
    same bytes every time.
    """
    info = f"{_NAME.replace('-', '_')}-{cloud_ml.__version__}.dist-info"
    members = {f"cloud_ml/{path}": content for path, content in _files()}
    head = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {cloud_ml.__version__}\n"
    members[f"{info}/METADATA"] = (
        head + "".join(f"Requires-Dist: {each}\n" for each in needed)
    ).encode()
    members[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: cloud-ml\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    members[f"{info}/RECORD"] = "".join(
        f"{name},,\n" for name in [*members, f"{info}/RECORD"]
    ).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return made.getvalue()


def _files() -> list[tuple[str, bytes]]:
    root = Path(str(resources.files(cloud_ml)))
    every = (path for room in ("net", "serving") for path in (root / room).rglob("*"))
    found = sorted(path for path in every if path.is_file() and "__pycache__" not in path.parts)
    return [("__init__.py", (root / "__init__.py").read_bytes())] + [
        (path.relative_to(root).as_posix(), path.read_bytes()) for path in found
    ]

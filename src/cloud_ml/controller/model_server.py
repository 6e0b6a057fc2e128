"""The model server as a package that replicas run like any trainer, and which framework a model
needs.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path, PurePosixPath

import cloud_ml
from cloud_ml.domain.services.kind import ReplicaRecord
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import TrainerSource
from cloud_ml.errors import NotFound
from cloud_ml.models.common import ObjectUri, parse_object_uri
from cloud_ml.objects.base import ObjectStore
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.storage import Storage

FRAMEWORKS: Mapping[str, str] = {
    "saved_model.pb": "tensorflow",
    "export.meta": "tensorflow",
    "model.keras": "keras",
    "model.tflite": "tensorflow",
    "model.onnx": "python",
    "model.pt2": "pytorch",
    "model.pt": "pytorch",
    "model.skops": "scikit-learn",
    "model.joblib": "scikit-learn",
    "model.pkl": "scikit-learn",
    "model.ubj": "xgboost",
    "model.json": "xgboost",
    "model.txt": "lightgbm",
    "model.py": "python",
}
"""A file in the folder of a version → the framework that its model needs."""

_BY_ENDING = {
    PurePosixPath(name).suffix: framework
    for name, framework in FRAMEWORKS.items()
    if name not in ("saved_model.pb", "export.meta", "model.json", "model.txt")
}
"""The same by the ending of a model that is one file."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("onnxruntime>=1.20", "tf2onnx>=1.16"),
    "python": ("onnxruntime>=1.20",),
    "scikit-learn": ("skops>=0.13",),
}
"""What a replica installs beside its framework and the model server's own needs."""
_NAME = "cloudml-model-server"
_SHOWN = 5
"""So many names of what lies where a model is missing are told."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def framework_of(objects: ObjectStore, uri: ObjectUri) -> str | None:
    """The framework of the newest version below a folder; None where there is no version of a known
    format.

    A folder without numbered ones may hold a model itself, and the URI may be that of one file.
    """
    if (framework := _of_file(objects, uri)) is not None:
        return framework
    base = uri.key.rstrip("/") + "/"
    listing = objects.list(uri.bucket, base, delimiter=True)
    folders = listing.folders
    numbers = [
        name
        for folder in folders
        if (name := PurePosixPath(folder).name).isascii() and name.isdigit()
    ]
    for number in sorted(
        numbers, key=int, reverse=True
    ):  # as they are written: TensorFlow 1 writes 00000001
        found = objects.list(uri.bucket, f"{base}{number}/", delimiter=True).objects
        names = {PurePosixPath(info.key).name for info in found}
        if (framework := _by_names(names)) is not None:
            return framework
    return (
        None if numbers else _by_names({PurePosixPath(info.key).name for info in listing.objects})
    )


def _of_file(objects: ObjectStore, uri: ObjectUri) -> str | None:
    """The framework of a model that is one file."""
    path = PurePosixPath(uri.key)
    framework = FRAMEWORKS.get(path.name) or _BY_ENDING.get(path.suffix)
    if framework is None or uri.key.endswith("/"):
        return None
    return framework if objects.head(uri.bucket, uri.key) is not None else None


def _by_names(names: Collection[str]) -> str | None:
    return next((each for file, each in FRAMEWORKS.items() if file in names), None)


def nothing_at(objects: ObjectStore, uri: ObjectUri) -> str:
    """What was looked for, where, and what lies there instead."""
    base = uri.key.rstrip("/") + "/"
    listing = objects.list(uri.bucket, base, delimiter=True, limit=_SHOWN + 1)
    names = [
        each.removeprefix(base)
        for each in (*listing.folders, *(info.key for info in listing.objects))
    ]
    there = (
        ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "") if names else "nothing"
    )
    wanted = f"a folder with a number for its name, such as {uri}/1, that holds one of {', '.join(FRAMEWORKS)}"
    if not names and (near := _near(objects, uri)):
        there = f"nothing; beside it there is {near}"
    return f"{uri} has no model: looked for {wanted}; there is {there}"


def _near(objects: ObjectStore, uri: ObjectUri) -> str:
    """What lies in the folder above."""
    above = uri.key.rstrip("/").rpartition("/")[0]
    listing = objects.list(
        uri.bucket, above + "/" if above else "", delimiter=True, limit=_SHOWN + 1
    )
    names = [*listing.folders, *(info.key for info in listing.objects)]
    return ", ".join(f"fds://{uri.bucket}/{name}" for name in names[:_SHOWN]) + (
        " …" if len(names) > _SHOWN else ""
    )


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
        found, problem = None, f"{uri} has no model: there is no bucket {uri.bucket!r}"
        if self._storage.owns(
            job.key.org, uri.bucket
        ):  # names in the bucket of another are not told
            with contextlib.suppress(NotFound):
                found = framework_of(self._objects, uri)
                problem = "" if found else nothing_at(self._objects, uri)
        if found is None:
            return job, TrainerSource("", _NAME, problem, Reason.MODEL_NOT_FOUND)
        program = spec.workload.program
        framework = program.framework or found
        workload = replace(spec.workload, program=replace(program, framework=framework))
        return replace(job, spec=spec.with_workload(workload)), self._package.source(framework)


class ModelServerPackage:
    """Makes wheels of the model server below ``folder``, one for each framework. Safe from
    several threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, TrainerSource] = {}

    def source(self, framework: str) -> TrainerSource:
        """The wheel whose requirements are those of a framework's models."""
        found = self._made.get(framework)
        if found is None or not Path(found.path).exists():
            found = self._made[framework] = self._make(_NEEDED.get(framework, ()))
        return found

    def _make(self, needed: tuple[str, ...]) -> TrainerSource:
        content = _wheel((*_own_needs(), *needed))
        name = f"{_NAME.replace('-', '_')}-{cloud_ml.__version__}-py3-none-any.whl"
        target = self._folder / f"model-server-{hashlib.sha256(content).hexdigest()[:32]}" / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(f".{name}.{id(content)}")
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # it is not made again while there is one
            draft.chmod(0o644)
            draft.replace(target)
        return TrainerSource(str(target), name)


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

"""Notes which objects the URIs of a job lead to, when it runs. Blocking, beside the job's start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from cloud_ml.domain.comparison.inputs import (
    MOST_URIS,
    InputManifest,
    InputObject,
    ManifestBuilder,
    entries_of,
    manifests_of,
)
from cloud_ml.domain.jobs.kind import TrainJobRecord, exports
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.tracking.runs import RunChange
from cloud_ml.domain.workloads import checkpoints, outputs
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound
from cloud_ml.models.common import ObjectUri, parse_object_uri
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.jobs.bucket_uris import find_bucket_uris
from cloud_ml.usecases.storage.objects import Storage

_PAGE, _MOST_OBJECTS = 1000, 200_000
_MOST_READ_BYTES = 256 * 2**20
"""So much is read of objects whose digest nobody knows; others are known by their ETag."""
_MOST_DIGESTS = 2000
_OUTPUT_FIELDS = frozenset(
    {"trainer_uri", "checkpoint.path", "data_output_path", "model_export_path", "output_path"}
)
_FOLDERS_OF_PLATFORM = (".trainers/", ".models/", f"{outputs.FOLDER}/", f"{checkpoints.FOLDER}/")
_WRITTEN_FIELDS = (
    "output_path", "model_export_path", "data_output_path", "log_path", "tensorboard_logdir",
)  # fmt: skip
logger = logging.getLogger(__name__)


@dataclass
class ReadBudget:
    """What may still be read for the manifests of one job."""

    bytes: int = _MOST_READ_BYTES
    objects: int = _MOST_DIGESTS


@dataclass(frozen=True)
class OwnObjects:
    """What is no input of a job in a bucket that it may write to: objects below the URIs ``folders``,
    in folders of the platform, or written since it has ``started``.
    """

    folders: Collection[str]
    started: datetime | None

    def has(self, info: ObjectInfo) -> bool:
        """Whether an object is one of them."""
        if info.key.startswith(_FOLDERS_OF_PLATFORM):
            return True
        if self.started is not None and info.modified >= self.started:
            return True
        return is_in(f"fds://{info.bucket}/{info.key}", self.folders)


class InputManifests:
    """Makes the manifests of jobs."""

    def __init__(self, store: StateStore, storage: Storage, objects: ObjectStore) -> None:
        self._store = store
        self._storage = storage
        self._objects = objects

    def note(self, job: TrainJobRecord, stop: Callable[[], bool]) -> None:
        """Note what the URIs of a job lead to now, unless it was noted before."""
        uid = job.key.uid
        try:
            known = manifests_of(self._store.tracking.inputs([uid]).get(uid, "[]"))
            missing = [uri for uri in input_uris(job.spec) if uri not in known]
            budget = ReadBudget()
            # A short job may have ended before anybody has seen that it runs.
            started = job.status.started_at or job.status.starting_at
            own = OwnObjects(written_uris(job.spec), started)
            for uri in missing:
                leave_out = own if uri == mounted_uri(job.spec) else None
                manifest = self.manifest(job.key.org, uri, stop, budget, leave_out)
                self._store.tracking.change_run(
                    uid, RunChange(more_inputs=list(entries_of(manifest)))
                )
        except (NotFound, InvalidRequest):  # the run is gone, or its inputs are too long
            return
        except CloudMlError:
            logger.exception("inputs of a job cannot be noted", extra={"uid": uid})

    def manifest(
        self,
        org: str,
        uri: str,
        stop: Callable[[], bool] = lambda: False,
        budget: ReadBudget | None = None,
        leave_out: OwnObjects | None = None,
    ) -> InputManifest:
        """What is at a URI now: an object, or all objects below a folder. Of a bucket that a job may
        write to, its own objects and those of the platform are to be left out.
        """
        budget = budget or ReadBudget()
        builder = ManifestBuilder(uri)
        where = _place(uri)
        if where is None or not self._storage.owns(org, where.bucket):
            return builder.built()
        for info in self._infos(where):
            if stop():
                break
            if leave_out is not None and leave_out.has(info):
                continue
            sha256 = info.sha256
            if sha256 is None and info.size <= budget.bytes and budget.objects > 0:
                budget.objects -= 1
                budget.bytes -= info.size
                sha256 = self._digest(info, stop)
            builder.add(InputObject(info.key, info.size, sha256 or f"etag:{info.etag}"))
        return builder.built()

    def _infos(self, where: ObjectUri) -> Iterator[ObjectInfo]:
        try:
            single = self._objects.head(where.bucket, where.key) if where.key else None
            if single is not None:
                yield single
                return
            prefix, after, count = f"{where.key.rstrip('/')}/" if where.key else "", "", 0
            while count < _MOST_OBJECTS:
                page = self._objects.list(where.bucket, prefix, after=after, limit=_PAGE)
                yield from page.objects
                count += len(page.objects)
                if page.next is None:
                    return
                after = page.next
        except NotFound:  # the bucket is gone
            return

    def _digest(self, info: ObjectInfo, stop: Callable[[], bool]) -> str | None:
        try:
            found = self._objects.digest(info.bucket, info.key, stop=stop)
        except CloudMlError:  # it went just now
            return None
        return found.sha256 if found.etag == info.etag else None


def input_uris(spec: JobSpec) -> list[str]:
    """The URIs that a job reads, as far as its fields and the names of its arguments tell."""
    written = {uri.rstrip("/") for uri in exports(spec)}
    found = [
        one.uri
        for one in find_bucket_uris(spec.submitted)
        if one.field not in _OUTPUT_FIELDS and one.uri.rstrip("/") not in written
    ]
    mounted = mounted_uri(spec)
    uris = [uri for uri in dict.fromkeys(found) if uri.rstrip("/") != mounted]
    return [*uris[: MOST_URIS - 1], mounted] if mounted else uris[:MOST_URIS]


def mounted_uri(spec: JobSpec) -> str:
    """The bucket that a job has at ``/fds``; empty if it has none."""
    bucket = spec.workload.bucket
    return f"fds://{bucket}" if bucket else ""


def written_uris(spec: JobSpec) -> Collection[str]:
    """The folders that a job says to write to: they are no inputs of a bucket that it has."""
    job = spec.submitted
    fields = (getattr(job, field) for field in _WRITTEN_FIELDS)
    found = [*exports(spec), *fields, spec.workload.checkpoint_folder]
    return {uri.rstrip("/") for uri in found if uri}


def is_in(uri: str, folders: Collection[str]) -> bool:
    """Whether an object is one of some URIs, or lies below one."""
    return any(uri == folder or uri.startswith(f"{folder}/") for folder in folders)


def _place(uri: str) -> ObjectUri | None:
    try:
        return parse_object_uri("uri", uri)
    except InvalidRequest:
        return None

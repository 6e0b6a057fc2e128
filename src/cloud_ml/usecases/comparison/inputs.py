"""Notes which objects the URIs of a job lead to, when it runs. Blocking, beside the job's start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
logger = logging.getLogger(__name__)


@dataclass
class ReadBudget:
    """What may still be read for the manifests of one job."""

    bytes: int = _MOST_READ_BYTES
    objects: int = _MOST_DIGESTS


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
            for uri in missing:
                manifest = self.manifest(job.key.org, uri, stop, budget)
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
    ) -> InputManifest:
        """What is at a URI now: an object, or all objects below a folder."""
        budget = budget or ReadBudget()
        builder = ManifestBuilder(uri)
        where = _place(uri)
        if where is None or not self._storage.owns(org, where.bucket):
            return builder.built()
        for info in self._infos(where):
            if stop():
                break
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
    return list(dict.fromkeys(found))[:MOST_URIS]


def _place(uri: str) -> ObjectUri | None:
    try:
        return parse_object_uri("uri", uri)
    except InvalidRequest:
        return None

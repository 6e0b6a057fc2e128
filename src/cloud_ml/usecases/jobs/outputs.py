"""The outputs of jobs that have ended: listed, found, and removed with their job. Blocking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import PurePosixPath

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads import outputs as rules
from cloud_ml.errors import NotFound, Unavailable
from cloud_ml.models import common
from cloud_ml.models.common import ObjectUri, parse_object_uri
from cloud_ml.models.jobs.outputs import OutputFile, OutputPage, model_at
from cloud_ml.models.services.model_files import BEGINNING_BYTES, TEXT_MODELS, begins_as_model
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.storage.objects import Storage

_PAGE = 1000
_LOOKED_INTO = 20
"""So many texts of a page are looked into to tell whether they are models."""


class Outputs:
    """Reads and removes what jobs left. ``output_collection`` stores it."""

    def __init__(self, store: StateStore, storage: Storage, objects: ObjectStore) -> None:
        self._store = store
        self._storage = storage
        self._objects = objects

    def page(self, job: TrainJobRecord, *, after: str = "", limit: int = _PAGE) -> OutputPage:
        """The outputs of a job in byte order of their paths."""
        folder = folder_of(job)
        if folder is None:
            return OutputPage(uri="", items=[])
        prefix = f"{folder.key}/"
        if not self._storage.owns(job.key.org, folder.bucket):
            return OutputPage(uri=str(folder), items=[])
        try:
            listing = self._objects.list(
                folder.bucket, prefix, after=prefix + after if after else "", limit=limit
            )
        except NotFound:  # the bucket went just now
            return OutputPage(uri=str(folder), items=[])
        texts = [info for info in listing.objects if PurePosixPath(info.key).suffix in TEXT_MODELS]
        looked_into = {info.key: self._text_model(info, prefix) for info in texts[:_LOOKED_INTO]}
        items = [_output(info, prefix, looked_into.get(info.key)) for info in listing.objects]
        return OutputPage(
            uri=str(folder), items=items, next=listing.next and listing.next.removeprefix(prefix)
        )

    def _text_model(self, info: ObjectInfo, prefix: str) -> str:
        """What to deploy if a text is a model, such as ``churn.json``: most texts are none."""
        try:
            _, chunks = self._objects.read(info.bucket, info.key, length=BEGINNING_BYTES)
            beginning = b"".join(chunks)
        except (NotFound, Unavailable):  # it went, or changes just now
            return ""
        path = info.key.removeprefix(prefix)
        return path if begins_as_model(path, beginning) else ""

    def uri_of(self, job: TrainJobRecord, path: str) -> ObjectUri:
        """Where one output of a job is stored.

        Raises:
            NotFound: The job has no outputs.
            InvalidRequest: ``path`` can be no path.
        """
        common.check_key("path", path)
        folder = folder_of(job)
        if folder is None:
            why = (
                "it left no outputs"
                if job.status.phase.terminal
                else "its outputs are stored when it ends"
            )
            raise NotFound(
                f"the job {job.key.name} has no output {path[:200]}: {why}",
                field="path",
                value=path[:200],
            )
        return ObjectUri(folder.bucket, f"{folder.key}/{path}")

    def delete(self, job: TrainJobRecord, *, stop: Callable[[], bool]) -> None:
        """Remove what the job left, a collection that a killed server began included. Repeating it
        is harmless.

        Raises:
            Unavailable: ``stop`` said so.
        """
        folder = folder_of(job)
        buckets = {self.bucket(job.key.org), folder.bucket if folder else ""} - {""}
        for bucket in buckets:
            if stop():
                raise interruption()
            if self._storage.owns(job.key.org, bucket):
                with contextlib.suppress(NotFound):  # the bucket went just now
                    self._objects.delete_folder(
                        bucket, rules.folder_of(job.key.name, job.key.uid).rstrip("/")
                    )

    def ended_before(self, moment: datetime) -> Iterator[TrainJobRecord]:
        """Jobs with outputs that ended before a time."""
        after: int | None = None
        while True:
            page = self._store.list(ORGANISATION, org=SYSTEM, after=after, limit=_PAGE)
            for line in page.items:
                for uid in self._uids(self.bucket(line.key.name)):
                    job = self._store.get(TRAIN_JOB, uid)
                    if (
                        job is not None
                        and job.status.outputs
                        and (job.status.finished_at or moment) < moment
                    ):
                        yield job
            if (after := page.next) is None:
                return

    def _uids(self, bucket: str) -> Iterator[str]:
        """Jobs that have a folder of outputs in a bucket. A job can make such a folder, too."""
        prefix, after = f"{rules.FOLDER}/", ""
        while bucket:
            try:
                listing = self._objects.list(
                    bucket, prefix, delimiter=True, after=after, limit=_PAGE
                )
            except NotFound:
                return
            for folder in listing.folders:
                yield folder.rstrip("/").rpartition("-")[2]
            if listing.next is None:
                return
            after = listing.next

    def bucket(self, org: str) -> str:
        """The bucket where outputs of an organisation's jobs go; empty if it has none."""
        record = self._store.find(ORGANISATION, SYSTEM, org)
        return "" if record is None else record.spec.default_bucket


def folder_of(job: TrainJobRecord) -> ObjectUri | None:
    """The folder of a job's outputs; ``None`` if it has none."""
    return parse_object_uri("uri", job.status.outputs.uri) if job.status.outputs else None


def interruption() -> Unavailable:
    """What ends a collection or a removal that nobody waits for any more."""
    return Unavailable("the outputs of the job are not done yet; this is tried again")


def _output(info: ObjectInfo, prefix: str, model: str | None) -> OutputFile:
    path = info.key.removeprefix(prefix)
    return OutputFile(
        path=path,
        uri=f"fds://{info.bucket}/{info.key}",
        size=info.size,
        modified=info.modified,
        etag=info.etag,
        model=model_at(path) if model is None else model,
    )

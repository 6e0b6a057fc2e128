"""The files that jobs run: trainers from buckets, from folders of the machine, from the web.

Nothing is waited for here: a pass asks again until the file is there.
"""

from __future__ import annotations

import functools
from typing import Protocol

from cloud_ml.controller.programs.copies import Copies
from cloud_ml.controller.programs.downloads import Downloads
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Record
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import W
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import ObjectUri
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.jobs.trainer_uris import FileTrainer, WebTrainer, parse_trainer_uri
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.uploads import Uploads


class Files(Protocol[W]):
    """Where what a kind of workload runs comes from."""

    async def provide(
        self, job: Record[W, WorkloadStatus]
    ) -> tuple[Record[W, WorkloadStatus], TrainerSource] | None:
        """The file, and the job with what was found out on the way; ``None`` while it is on its
        way.
        """

    def forget(self, uid: str) -> None:
        """Nobody waits for this job's file any more."""

    async def tidy(self) -> None:
        """Drop what nobody has used for long."""


class Trainers:
    """Trainers as train jobs name them."""

    def __init__(
        self,
        *,
        storage: Storage,
        uploads: Uploads,
        packages: Packages,
        downloads: Downloads,
        settings: TrainerSettings,
        offload: Offload,
        slow_copy_s: float = 30.0,
    ) -> None:
        self._storage = storage
        self._uploads = uploads
        self._packages = packages
        self._downloads = downloads
        self._settings = settings
        self._offload = offload
        self._copies = Copies(slow_s=slow_copy_s)

    async def provide(self, job: TrainJobRecord) -> tuple[TrainJobRecord, TrainerSource] | None:
        """The trainer's file. The rules are those of today, not of the submit."""
        source = await self._source(job)
        return None if source is None else (job, source)

    def forget(self, uid: str) -> None:
        """A download that is under way for it alone is no longer wanted."""
        self._downloads.forget(uid)
        self._copies.forget(uid)

    async def tidy(self) -> None:
        """Drop copies of trainers that nobody has used for long, uploads that nobody went on
        with, and what fetches of a killed server left.
        """
        await self._offload(self._packages.prune)
        await self._offload(self._downloads.sweep)
        await self._offload(self._uploads.sweep)

    async def _source(self, job: TrainJobRecord) -> TrainerSource | None:
        text = job.spec.workload.program.source
        try:
            uri = parse_trainer_uri(text, self._settings)
        except InvalidRequest as error:
            return TrainerSource("", "trainer", error.user_message)
        if isinstance(uri, WebTrainer):
            return await self._downloads.get(job.key.org, job.key.uid, uri)
        if isinstance(uri, FileTrainer):
            copy = functools.partial(self._packages.from_file, uri.path, self._settings)
        else:
            copy = functools.partial(self._fetch_from_bucket, job, text, uri)
        return await self._copies.get(job.key.uid, lambda: self._offload.long(job.key.org, copy))

    def _fetch_from_bucket(self, job: TrainJobRecord, text: str, uri: ObjectUri) -> TrainerSource:
        """Read with the tenant's eyes: another's bucket is as absent as none."""
        if not self._storage.owns(job.key.org, uri.bucket):
            return TrainerSource("", "trainer", f"the trainer {text} does not exist")
        return self._packages.fetch(uri)

"""From a service to what made its model: the files, and the jobs that exported to where they
lie. Blocking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord, export_tag, exports
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.errors import NotFound
from cloud_ml.models.common import ObjectUri, parse_object_uri
from cloud_ml.models.secrets.arguments import mask_words
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import ServiceLineage, ServiceOrigin
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match

_MOST_JOBS = 20
_MOST_FILES = 10_000


class Lineage:
    """Finds out where models came from."""

    def __init__(self, store: StateStore, objects: ObjectStore) -> None:
        self._store = store
        self._objects = objects

    def of(self, service: ServiceRecord, model: ModelService) -> ServiceLineage:
        """Where a model of a service came from, as far as it is known: of what is served, or of
        the candidate.
        """
        uri = parse_object_uri("model_uri", model.model_uri)
        base = f"{uri.key.rstrip('/')}/"
        number, files = self._newest(uri.bucket, base)
        digest = hashlib.sha256()
        for info in files:
            name = info.key.removeprefix(f"{base}{number}/" if number is not None else base)
            digest.update(f"{name}\0{info.sha256 or info.etag}\n".encode())
        return ServiceLineage(
            model_uri=model.model_uri,
            number=None if number is None else int(number),
            digest=digest.hexdigest() if files else "",
            files=len(files),
            size=sum(info.size for info in files),
            written_at=max((info.modified for info in files), default=None),
            jobs=[_origin(job) for job in self._jobs(service.key.org, uri)],
        )

    def _newest(self, bucket: str, base: str) -> tuple[str | None, Sequence[ObjectInfo]]:
        try:
            folders = self._objects.list(bucket, base, delimiter=True).folders
            # `isdecimal` is true for what `int` takes, `isdigit` also for a superscript.
            names = [name for folder in folders if (name := PurePosixPath(folder).name).isdecimal()]
            if not names:
                return None, ()
            number = max(names, key=int)
            return number, self._objects.list(bucket, f"{base}{number}/", limit=_MOST_FILES).objects
        except NotFound:  # the bucket is gone
            return None, ()

    def _jobs(self, org: str, uri: ObjectUri) -> list[TrainJobRecord]:
        match = Match(tags=(export_tag(str(uri)),))
        page = self._store.list(TRAIN_JOB, org=org, match=match, limit=_MOST_JOBS)
        return [
            record
            for line in page.items
            if (record := self._store.get(TRAIN_JOB, line.key.uid)) is not None
        ]


def _origin(job: TrainJobRecord) -> ServiceOrigin:
    spec, status = job.spec.submitted, job.status
    made = {str(one) for one in exports(job.spec)}
    named = [word.rpartition("=")[2] for word in job.spec.workload.program.arguments]
    named += [given for given in (spec.data_input_path, spec.model_input_path) if given]
    data = [
        one
        for one in dict.fromkeys(named)
        if one.startswith("fds://") and one.rstrip("/") not in made
    ]
    return ServiceOrigin(
        uid=job.key.uid,
        name=job.key.name,
        phase=status.phase.value,
        owner=job.owner,
        finished_at=status.finished_at,
        module_name=spec.module_name,
        trainer_uri=spec.trainer_uri,
        trainer_digest=status.trainer_digest,
        runtime=status.runtime,
        environment_lock=status.environment_lock,
        job_args=mask_words(job.spec.workload.program.arguments),
        data=data,
    )

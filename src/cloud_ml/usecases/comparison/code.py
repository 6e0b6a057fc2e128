"""The files of the code of two jobs, and what differs between them. Blocking."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.errors import CloudMlError, InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.common import parse_object_uri
from cloud_ml.models.secrets.diffs import without_secrets
from cloud_ml.models.tracking.comparison import ComparedFile
from cloud_ml.objects.base import ObjectStore
from cloud_ml.usecases.storage.objects import Storage

LARGEST_CODE = 32 * 2**20


class CannotCompare(Exception):
    """Why files cannot be compared, in words."""


CompareArchives = Callable[[bytes, bytes], list[dict[str, Any]]]
"""The files that differ between two archives, as documents of ``ComparedFile``."""


def no_archives(_first: bytes, _second: bytes) -> list[dict[str, Any]]:
    """Nothing compares archives here.

    Raises:
        CannotCompare: Always.
    """
    raise CannotCompare("this server compares no archives")


class CodeDifferences:
    """Compares the code of jobs, as it lies in the buckets of their organisation.

    An organisation has one comparison under way. Archives are compared one at a time, and whoever
    asks for many that take long would have everybody wait behind all of them.
    """

    def __init__(
        self, storage: Storage, objects: ObjectStore, compare_archives: CompareArchives
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._compare_archives = compare_archives
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def between(
        self, first: TrainJobRecord, second: TrainJobRecord
    ) -> tuple[Sequence[ComparedFile], str]:
        """(files that differ, why there are none)."""
        if first.status.trainer_digest == second.status.trainer_digest:
            return (), ""
        try:
            with self._locks[first.key.org]:
                found = self._compare_archives(self._code(first), self._code(second))
            files = [codec.decode(ComparedFile, one, ignore_unknown=True) for one in found]
        except CannotCompare as error:
            return (), f"the files of the code are not compared: {error}"
        except CloudMlError:
            return (), "the files of the code are not compared: the answer makes no sense"
        return [_mask(one) for one in files], ""

    def _code(self, job: TrainJobRecord) -> bytes:
        uri = job.spec.submitted.trainer_uri
        try:
            where = parse_object_uri("trainer_uri", uri)
        except InvalidRequest:
            raise CannotCompare(f"that of {job.key.name} is not in a bucket") from None
        if not self._storage.owns(job.key.org, where.bucket):
            raise CannotCompare(f"that of {job.key.name} is gone")
        try:
            info = self._objects.digest(where.bucket, where.key)
            if info.size > LARGEST_CODE:
                raise CannotCompare(f"that of {job.key.name} is larger than 32M")
            if job.status.trainer_digest not in ("", info.sha256):
                raise CannotCompare(f"that of {job.key.name} was replaced since")
            _, chunks = self._objects.read(where.bucket, where.key, length=LARGEST_CODE)
            return b"".join(chunks)
        except CloudMlError:
            raise CannotCompare(f"that of {job.key.name} is gone") from None


def _mask(file: ComparedFile) -> ComparedFile:
    diff = without_secrets(file.diff.encode("utf-8", "replace")).decode()
    return ComparedFile(
        path=file.path, digests=file.digests, sizes=file.sizes, diff=diff, cut=file.cut
    )

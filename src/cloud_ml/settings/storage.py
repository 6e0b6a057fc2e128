"""Buckets, objects and the outputs of jobs."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.models.storage.objects import PRESIGN_LIMIT_S
from cloud_ml.settings.sizes import GIB, MIB


@dataclass(frozen=True)
class StorageSettings:
    """Buckets and objects."""

    usage_staleness_s: float = 60.0
    """How old a count of what a bucket holds may be. Uploads are added to it at once."""
    presign_limit_s: float = PRESIGN_LIMIT_S
    """How long a link to an object may be good for."""
    upload_expiry_s: float = 604_800.0
    """How long an unfinished upload is kept after its last part or segment."""
    upload_part_limit_bytes: int = GIB
    """Largest part or segment of an upload in several requests. Other uploads are not bound by
    it.
    """
    uploads_per_bucket: int = 1000
    """Most uploads in several requests that may be under way to one bucket."""
    batch_objects: int = 250
    """Most objects in one request that sends or reads many small ones."""
    batch_bytes: int = 16 * MIB
    """Most bytes of objects that one such request may send."""
    batch_object_bytes: int = MIB
    """Largest object that such a request reads; each is held in memory while it is read."""
    buckets_per_org: int = 1000
    """Most buckets of one organisation; 0 for any number. Each is mounted into every job of it."""
    objects_per_org: int = 1_000_000
    """Most objects and folders in all buckets of one organisation, and files of its unfinished
    uploads; 0 for any number. Uploads beyond are refused; what jobs write counts and is not
    stopped. The count may be a minute old.
    """
    disk_reserve: str = "1G"
    """What must stay free on the disk of the objects for jobs and the database: uploads that
    would need it are refused, also while they come. The same holds for the last 2 % of the files
    that the disk can hold. Of a small disk the reserve is a twentieth at most. Empty: nothing.
    """
    usage_time_limit_s: float = 5.0
    """How long one count may take; after that the figure is a lower bound and says so."""
    bucket_wait_s: float = 10.0
    """How long a call that makes or removes a bucket waits for others that do the same with a
    bucket of its name.
    """


@dataclass(frozen=True)
class OutputSettings:
    """Files that jobs leave in their working directory and that are stored when they end."""

    max_bytes: str = "10G"
    """The most that one job may store. The smallest files come first; an event names the largest
    that are left out. Empty: no limit but the quota of storage.
    """
    max_files: int = 100_000
    """The most files that one job may store; 0 means no limit."""
    matching_s: float = 10.0
    """The processor time for comparing the files of one job with the patterns of ``--outputs``
    or ``.cloudmlignore``. Files beyond it are not stored. 0 means no limit.
    """
    retention_days: int = 0
    """How long outputs are kept after the end of their job. 0: until the job is deleted."""

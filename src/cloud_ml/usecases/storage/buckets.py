"""Buckets: a record that says whose one is, and a place in the object store. They come and go
together.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloud_ml.domain.records import Record
from cloud_ml.domain.tenancy import (
    BUCKET,
    ORGANISATION,
    SYSTEM,
    BucketSpec,
    OrganisationSpec,
    StandingStatus,
)
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RequestError,
)
from cloud_ml.models import common
from cloud_ml.models.storage.objects import Bucket
from cloud_ml.objects.base import ObjectStore
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import EVERYTHING, Match
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.access.rights import turn
from cloud_ml.usecases.clock import Clock


class LostBuckets(Exception):
    """Buckets that have a record and no folder. The message is for the owner of a job."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"the server has lost the folder of the bucket {', '.join(names[:_SHOWN])}; ask its "
            "operator to start it again"
        )


BucketRecord = Record[BucketSpec, StandingStatus]
_SHOWN = 5
_FEW, _PAGE = 20, 1000
"""To walk past a few buckets is quicker than to find one's own among all."""
logger = logging.getLogger(__name__)


class Buckets:
    """Make, find, remove and repair buckets. Blocking.

    Record and place are in two stores. Both change only under the lock of the bucket's name, so
    callers at once never see or leave one without the other. What a killed server leaves is
    repaired at the next start.
    """

    def __init__(
        self, store: StateStore, objects: ObjectStore, clock: Clock, *, most: int = 0
    ) -> None:
        self._most = most
        self._store = store
        self._objects = objects
        self._clock = clock

    def create(
        self, organisation: Organisation, name: str, *, owner: str = "", once: Once | None = None
    ) -> Bucket:
        """See ``Storage.create_bucket``."""
        common.check_bucket("bucket", name)
        with self._objects.bucket_lock(name):
            record = self._store.find(BUCKET, SYSTEM, name)
            if record is None:
                self._check_few(organisation.name)
                return _bucket(self._make(organisation, name, owner, once))
            _check_free(record, organisation)  # a refusal is not in the audit log as done
            if once is not None:
                self._store.remember(once)
            self._objects.create_bucket(name, tenant=organisation.number)
            return _bucket(record)

    def _check_few(self, org: str) -> None:
        """Refuse one more bucket than an organisation may have: each is a record, and a folder that
        its jobs mount.

        Raises:
            QuotaExceeded: There are as many.
        """
        if self._most and len(self.all(org)) >= self._most:
            raise QuotaExceeded(
                f"{org} has {self._most} buckets; one more is refused",
                field="bucket",
                allowed=f"at most {self._most} buckets (the operator's setting "
                "storage.buckets_per_org)",
                hint="remove buckets that are not needed any more",
            )

    def delete(
        self,
        organisation: Organisation,
        name: str,
        *,
        force: bool = False,
        once: Once | None = None,
    ) -> Bucket:
        """See ``Storage.delete_bucket``."""
        if not self.owns(organisation.name, name):
            raise no_bucket(name)
        gone = self._delete(organisation, name, once, force=force)
        if force:
            self._objects.reclaim()
        return gone

    def _delete(
        self, organisation: Organisation, name: str, once: Once | None, *, force: bool
    ) -> Bucket:
        with self._objects.bucket_lock(name):
            record = self._store.find(BUCKET, SYSTEM, name)
            if record is None or record.spec.org != organisation.name:
                raise no_bucket(name)
            if name == organisation.default_bucket:
                raise Conflict(
                    f"{name} is the default bucket of {organisation.name}: trainers are "
                    "uploaded to it",
                    field="bucket",
                    value=name,
                )
            entry = None
            if once is not None:
                # A bucket that has files is refused below, and a crash leaves it in place: its
                # removal is on record when its record goes. One by force is never refused, and the
                # next start completes it: it is on record at once.
                if not force and once.entry is not None:
                    entry = once.entry.about(name)
                    once = replace(once, entry=None)
                self._store.remember(once)
            # Remove the folder first: after a crash here, the next start repairs a record without
            # a folder.
            self._objects.delete_bucket(name, force=force)
            try:
                self._store.delete(BUCKET, record.key.uid, fence=None, entry=entry)
            except Exception:
                with contextlib.suppress(Exception):  # the next start would make it again, too
                    self._objects.create_bucket(name, tenant=organisation.number)
                raise
            return _bucket(record)

    def all(self, org: str | None) -> list[Bucket]:
        """See ``Storage.buckets``."""
        page, match = self._store.list(BUCKET, org=SYSTEM, limit=_FEW), EVERYTHING
        # Each job that starts asks this, and must not read the buckets of all organisations.
        if org is not None and page.next is not None:
            match = Match(owner=org)
            page = self._store.list(BUCKET, org=SYSTEM, match=match, limit=_PAGE)
        found = list(page.items)
        while page.next is not None:
            page = self._store.list(BUCKET, org=SYSTEM, match=match, after=page.next, limit=_PAGE)
            found += page.items
        return sorted(
            (
                Bucket(
                    name=item.key.name, org=item.owner, created_at=item.created_at, owner=item.title
                )
                for item in found
                if org in (None, item.owner)
            ),
            key=lambda bucket: bucket.name,
        )

    def owns(self, org: str, bucket: str) -> bool:
        """See ``Storage.owns``."""
        try:
            common.check_bucket("bucket", bucket)
        except InvalidRequest:
            return False
        record = self._store.find(BUCKET, SYSTEM, bucket)
        return record is not None and record.spec.org == org

    def check_own(self, org: str, bucket: str) -> None:
        """Refuse a bucket that is not the organisation's.

        Raises:
            NotFound: It is not, or there is none.
        """
        if not self.owns(org, bucket):
            raise no_bucket(bucket)

    def mountable(self, org: str) -> list[str]:
        """Names of the buckets that jobs of an organisation see, sorted.

        Raises:
            LostBuckets: One has lost its folder. No job may run as if it were not there.
        """
        names: list[str] = []
        lost: list[str] = []
        for bucket in self.all(org):
            if self._objects.has_bucket(bucket.name):
                names.append(bucket.name)
            elif (has_folder := self._find_settled(org, bucket.name)) is not None:
                (names if has_folder else lost).append(bucket.name)
        if lost:
            raise LostBuckets(lost)
        return names

    def repair(self) -> None:
        """Make what a killed server left whole: at a start, before anybody is served.

        A removal with ``force`` that has begun is ended.
        A record without a place gets an empty one. An empty place without a record goes. One with
        content stays where it is, and is set aside when somebody makes a bucket of its name. An
        empty place of another organisation's user is given to the right one; one with content is
        named in the log, and by `cloudml doctor`.
        """
        for name in self._objects.removed():
            with _log_errors(name), self._objects.bucket_lock(name):
                self._end_removal(name)
        self._objects.reclaim()
        there = set(self._objects.buckets())
        owners = {bucket.name: bucket.org for bucket in self.all(None)}
        for name in sorted(owners.keys() - there):
            with _log_errors(name), self._objects.bucket_lock(name):
                self._repair_record(name, owners[name])
        numbers = {org: self._number(org) for org in set(owners.values())}
        for name in sorted(there & owners.keys()):
            with _log_errors(name):
                self._repair_owner(name, numbers[owners[name]])
        for name in sorted(there - owners.keys()):
            with _log_errors(name), self._objects.bucket_lock(name):
                if self._store.find(BUCKET, SYSTEM, name) is None:
                    self._remove_orphan(name)

    def _end_removal(self, name: str) -> None:
        """Remove the record of a bucket whose content has been moved away for ever.

        Its removal is in the audit log, so nobody should find an empty bucket of its name. If a new
        bucket of the name has a record and no folder, it was never acknowledged: it goes, too.
        """
        record = self._store.find(BUCKET, SYSTEM, name)
        if record is not None and name not in self._objects.buckets():
            self._store.delete(BUCKET, record.key.uid, fence=None)
            logger.warning("the removal of the bucket %s was interrupted; it is complete now", name)

    def _repair_record(self, name: str, org: str) -> None:
        organisation = self._store.find(ORGANISATION, SYSTEM, org)
        if self._store.find(BUCKET, SYSTEM, name) is not None and organisation is not None:
            self._objects.create_bucket(name, tenant=organisation.spec.number)
            logger.warning(
                "the bucket %s had a record and no folder; it has an empty one now", name
            )

    def _number(self, org: str) -> int | None:
        organisation = self._store.find(ORGANISATION, SYSTEM, org)
        return None if organisation is None else organisation.spec.number

    def _repair_owner(self, name: str, number: int | None) -> None:
        """Give a folder to its organisation's user: an earlier version could leave it to that of
        another one.
        """
        if number is None or not (remedy := self._objects.wrong_owner(name, number)):
            return
        with self._objects.bucket_lock(name):
            if self._objects.repair_owner(name, number):
                logger.warning(
                    "the empty folder of the bucket %s had a wrong owner; it has the right one now",
                    name,
                )
            else:
                logger.warning(
                    "jobs cannot use the bucket %s: another user owns its folder; if it is theirs: "
                    "%s",
                    name,
                    remedy,
                )

    def _remove_orphan(self, name: str) -> None:
        try:
            self._objects.delete_bucket(name)
        except Conflict:
            logger.warning("the folder of %s belongs to no bucket; it has files, so it stays", name)
        else:
            logger.warning("the empty folder of %s belonged to no bucket; it was removed", name)

    def _make(
        self, organisation: Organisation, name: str, owner: str, once: Once | None
    ) -> BucketRecord:
        """Make the folder, and then the record.

        An answer of the database may be lost although the record is there. So a record is never
        made before its folder, nor left behind it: no job of the organisation would start. An empty
        folder without a record harms nobody, and the next start removes it.
        """
        self._objects.create_bucket(name, tenant=organisation.number, new=True)
        record, made, claim_tried = None, False, False
        try:
            with turn(self._store, self._clock, lease_of(organisation.name), _BUSY):
                self._check_organisation(organisation)
                claim_tried = True
                record, made = self._claim(organisation, name, owner, once)
            if not made:  # another server on this database claimed it since we looked
                _check_free(record, organisation)
            self._check_organisation(organisation)  # a turn that took too long is over
        except Exception as error:
            if claim_tried and not isinstance(error, RequestError):  # there may be a record
                raise
            with contextlib.suppress(Exception):  # the next start repairs it, too
                if made and record is not None:
                    self._store.delete(BUCKET, record.key.uid, fence=None)
                self._objects.delete_bucket(name)
            raise
        return record

    def _check_organisation(self, organisation: Organisation) -> None:
        record: Record[OrganisationSpec, StandingStatus] | None
        record = self._store.find(ORGANISATION, SYSTEM, organisation.name)
        if record is None or record.delete_requested_at is not None:
            raise Conflict(
                f"the organisation {organisation.name} is gone",
                field="org",
                value=organisation.name,
            )

    def _claim(
        self, organisation: Organisation, name: str, owner: str, once: Once | None
    ) -> tuple[BucketRecord, bool]:
        try:
            record = self._store.create(
                BUCKET,
                org=SYSTEM,
                name=name,
                owner=organisation.name,
                spec=BucketSpec(org=organisation.name, owner=owner),
                status=StandingStatus(),
                now=self._clock(),
                title=owner,
                once=once,
            )
        except AlreadyExists:
            found = self._store.find(BUCKET, SYSTEM, name)
            if found is None:
                raise
            return found, False
        return record, True

    def _find_settled(self, org: str, name: str) -> bool | None:
        """Whether the bucket has its folder after those who make or remove it at this moment have
        ended; ``None`` if it is not the organisation's any more.
        """
        with self._objects.bucket_lock(name, shared=True):
            return self._objects.has_bucket(name) if self.owns(org, name) else None


_BUSY = "somebody else is making buckets of the organisation at this moment"


def lease_of(org: str) -> str:
    """The lease under which an organisation gets buckets, or goes."""
    return f"buckets of {org}"


def no_bucket(name: str) -> NotFound:
    """The answer for a bucket that is not there, or somebody else's."""
    return NotFound(f"there is no bucket {name[:63]}", field="bucket", value=name[:63])


def _check_free(record: BucketRecord, organisation: Organisation) -> None:
    if record.spec.org != organisation.name:
        name = record.key.name
        raise AlreadyExists(f"the bucket name {name} is taken", field="bucket", value=name)


def _bucket(record: BucketRecord) -> Bucket:
    spec = record.spec
    return Bucket(
        name=record.key.name, org=spec.org, created_at=record.created_at, owner=spec.owner
    )


@contextlib.contextmanager
def _log_errors(name: str) -> Iterator[None]:
    """A bucket that cannot be repaired now (a disk that can only be read) keeps no server from
    its start.
    """
    try:
        yield
    except (CloudMlError, OSError):
        logger.exception("the bucket %s cannot be repaired now", name)

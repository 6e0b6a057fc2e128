"""What an administrator may do with organisations. Blocking."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.secrets import SECRET
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.tenancy import (
    BUCKET,
    ORGANISATION,
    SYSTEM,
    Operation,
    OrganisationSpec,
    StandingStatus,
)
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.tracking.models import LOGGED_MODEL
from cloud_ml.domain.tracking.registry import MODEL_VERSION, REGISTERED_MODEL
from cloud_ml.domain.tracking.runs import RUN
from cloud_ml.errors import AlreadyExists, Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.admin import accounts
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identities, Identity, everything, usable
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.access.rights import Rights, turn
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.storage.buckets import lease_of
from cloud_ml.usecases.storage.objects import Storage

OrganisationRecord = Record[OrganisationSpec, StandingStatus]
_OTHERS: tuple[tuple[Kind[Any, Any], str], ...] = (
    (STUDY, "studies"),
    (TENSORBOARD, "TensorBoards"),
    (RUN, "runs"),
    (LOGGED_MODEL, "logged models"),
    (REGISTERED_MODEL, "registered models"),
    (MODEL_VERSION, "model versions"),
)
"""What keeps an organisation from being removed, beside jobs, model services and buckets."""


class Organisations:
    """Make, look at, change and remove organisations. One of somebody else is as absent as one
    that never was.
    """

    def __init__(
        self, store: StateStore, identities: Identities, storage: Storage, clock: Clock
    ) -> None:
        self._store = store
        self._identities = identities
        self._storage = storage
        self._clock = clock
        self._rights = Rights(store, clock)

    def list(self, caller: Identity) -> list[accounts.Organisation]:
        """Every organisation for an admin, the own one for everybody else."""
        if not caller.admin:
            return [self.describe(caller, caller.org)]
        found = (
            self._store.get(ORGANISATION, line.key.uid)
            for line in everything(self._store, ORGANISATION, SYSTEM)
        )
        return [
            _to_wire(record)
            for record in found
            if record is not None and record.delete_requested_at is None
        ]

    def describe(self, caller: Identity, name: str) -> accounts.Organisation:
        """One organisation.

        Raises:
            NotFound: It is absent, or not the caller's.
        """
        return _to_wire(self._find(caller, name))

    def create(
        self, caller: Identity, request: accounts.NewOrganisation, *, once: Once | None = None
    ) -> accounts.Organisation:
        """Make an organisation and its default bucket.

        Raises:
            Forbidden: The caller is no admin.
            InvalidRequest: A name is malformed.
            AlreadyExists: A name is taken, perhaps by an organisation that is gone: numbers are
                never reused.
        """
        permit(caller, Operation.MANAGE_PLATFORM)
        common.check_name("name", request.name)
        _check_mail(request.mail)
        bucket = self._bucket_for(request)
        try:
            made = self._identities.create_organisation(
                request.name, mail=request.mail, default_bucket=bucket, once=once
            )
        except AlreadyExists as error:
            raise self._name_was_given(request.name) or error from error
        if bucket:
            self._storage.create_bucket(made, bucket)
        return self.describe(caller, request.name)

    def _name_was_given(self, name: str) -> AlreadyExists | None:
        """The refusal of the name of an organisation that is deleted; ``None`` if there is none."""
        record = self._store.find(ORGANISATION, SYSTEM, name)
        if record is None or record.delete_requested_at is None:
            return None
        return AlreadyExists(
            f"the name {name} belonged to an organisation that is deleted; such a name is never "
            "given again",
            field="name",
            value=name,
            allowed="a name that no organisation has had",
        )

    def change(
        self,
        caller: Identity,
        name: str,
        change: accounts.OrganisationChange,
        *,
        once: Once | None = None,
    ) -> accounts.Organisation:
        """Enable or disable an organisation, or change what is known of it.

        Raises:
            Forbidden: The caller is no admin.
            NotFound: There is none.
            Conflict: It would lock out the caller.
            InvalidRequest: The bucket is not the organisation's.
        """
        permit(caller, Operation.MANAGE_PLATFORM)
        record = self._find(caller, name)
        org = record.key.name
        if change.enabled is False and org == caller.org:
            raise Conflict(
                f"{org} is your own organisation: you would lock yourself out",
                field="enabled",
                value=False,
            )
        if change.mail is not None:
            _check_mail(change.mail)
        if change.default_bucket and not self._storage.owns(org, change.default_bucket):
            raise common.refuse("default_bucket", change.default_bucket, f"a bucket of {org}")

        def changed(spec: OrganisationSpec) -> OrganisationSpec:
            return replace(
                spec,
                enabled=spec.enabled if change.enabled is None else change.enabled,
                mail=spec.mail if change.mail is None else change.mail,
                default_bucket=spec.default_bucket
                if change.default_bucket is None
                else change.default_bucket,
            )

        takes = change.enabled is False
        with self._rights.taking() if takes else contextlib.nullcontext() as fence:
            if takes and not any(
                one.admin and one.org != org for one in self._identities.everybody()
            ):
                raise Conflict(
                    f"{org} is the last organisation with an admin", field="enabled", value=False
                )
            record = self._store.change_spec(
                ORGANISATION, record.key.uid, changed, now=self._clock(), once=once, fence=fence
            )
        self._identities.clear()
        return _to_wire(record)

    def delete(
        self, caller: Identity, name: str, *, once: Once | None = None
    ) -> accounts.Organisation:
        """Remove an organisation that is disabled and holds nothing any more. Its keys, users and
        secrets go with it, and its default bucket, which must be empty.

        Its record stays as a mark: neither name nor number is ever given to another tenant.

        Raises:
            Forbidden: The caller is no admin.
            NotFound: There is none.
            Conflict: It is enabled, or has jobs, model services, objects or other buckets.
        """
        permit(caller, Operation.MANAGE_PLATFORM)
        record = self._find(caller, name)
        org = record.key.name
        if record.spec.enabled:
            raise Conflict(
                f"{org} is enabled: disable it first",
                field="enabled",
                value=True,
                hint=f"cloudml admin orgs disable {org}",
            )
        with turn(
            self._store,
            self._clock,
            lease_of(org),
            f"somebody makes a bucket of {org} at this moment",
        ) as fence:
            self._check_holds_nothing(org)
            self._delete_default_bucket(org, record.spec.default_bucket)
            # Do this before marking the organisation, so that an interrupted deletion is repeated
            # as a whole.
            for secret in everything(self._store, SECRET, org):
                self._store.request_delete(SECRET, secret.key.uid, now=self._clock())
                self._store.delete(SECRET, secret.key.uid, fence=None)
            self._store.tracking.forget_experiments(org)
            record = self._store.request_delete(
                ORGANISATION, record.key.uid, now=self._clock(), once=once, fence=fence
            )
        self._identities.clear()
        return _to_wire(record)

    def _check_holds_nothing(self, org: str) -> None:
        if self._store.list(TRAIN_JOB, org=org, limit=1).items:
            raise _still_has(org, "jobs")
        if self._store.list(MODEL_SERVICE, org=org, limit=1).items:
            raise _still_has(org, "model services")
        # An organisation of the same name would find them.
        for kind, what in _OTHERS:
            if self._store.list(kind, org=org, limit=1).items:
                raise _still_has(org, what)
        default = self._identities.organisation(org).default_bucket
        names = [bucket.name for bucket in self._storage.buckets(org)]
        if others := [name for name in names if name != default]:
            raise Conflict(
                f"{org} has buckets: {', '.join(others[:10])}",
                field="org",
                value=org,
                hint=_advise(org, f"cloudml storage rb --force {others[0]}"),
            )
        if default in names and self._storage.list(org, default, limit=1).objects:
            raise _holds_objects(org, default)

    def _delete_default_bucket(self, org: str, bucket: str) -> None:
        """Remove it, without what the audit log would say: its removal is the organisation's.

        Raises:
            Conflict: There is something in it.
        """
        if not bucket or not self._storage.owns(org, bucket):
            return
        nobodys_default = replace(self._identities.organisation(org), default_bucket="")
        try:
            self._storage.delete_bucket(nobodys_default, bucket)
        except Conflict:
            raise _holds_objects(org, bucket) from None

    def _find(self, caller: Identity, name: str) -> OrganisationRecord:
        organisation = self._identities.named(caller, name)
        record = self._store.find(ORGANISATION, SYSTEM, organisation.name)
        if record is None or record.delete_requested_at is not None:
            raise NotFound(f"there is no organisation {name[:63]}", field="org", value=name[:63])
        return record

    def _bucket_for(self, request: accounts.NewOrganisation) -> str:
        """The name of the default bucket; empty when the obvious one is somebody else's.

        Raises:
            AlreadyExists: The one that was asked for is.
        """
        bucket = request.default_bucket or (
            request.name if len(request.name) > 2 else f"{request.name}-data"
        )
        common.check_bucket("default_bucket", bucket)
        if self._store.find(BUCKET, SYSTEM, bucket) is None:
            return bucket
        if request.default_bucket:
            raise AlreadyExists(
                f"the bucket name {bucket} is taken", field="default_bucket", value=bucket
            )
        return ""


def _still_has(org: str, what: str) -> Conflict:
    return Conflict(f"{org} has {what}: delete them first", field="org", value=org)


def _holds_objects(org: str, bucket: str) -> Conflict:
    return Conflict(
        f"the default bucket of {org}, {bucket}, holds objects",
        field="org",
        value=org,
        hint=_advise(org, f"cloudml storage rm -r fds://{bucket}"),
    )


def _advise(org: str, command: str) -> str:
    return (
        f"cloudml admin orgs enable {org}; with a key of {org}: {command}; "
        f"cloudml admin orgs disable {org}; and delete it again"
    )


def _check_mail(mail: str) -> None:
    common.check_text("mail", mail, limit=254, allow_empty=True)


def _to_wire(record: OrganisationRecord) -> accounts.Organisation:
    spec = record.spec
    return accounts.Organisation(
        name=record.key.name,
        org_id=str(spec.number),
        enabled=usable(record),
        mail=spec.mail,
        default_bucket=spec.default_bucket,
        created_at=record.created_at,
    )

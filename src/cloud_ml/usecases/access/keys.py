"""What may be done with keys: by everybody with the own ones, by an owner with the
organisation's. Blocking.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta

from cloud_ml.domain.records import Record
from cloud_ml.domain.tenancy import (
    ACCESS_KEY,
    SYSTEM,
    AccessKeySpec,
    Operation,
    Role,
    StandingStatus,
    permits,
)
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.admin import accounts
from cloud_ml.settings import KeySettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identities, Identity, everything, plausible
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.access.rights import Rights
from cloud_ml.usecases.access.users import UserRecord, Users, check_rank
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.repeated_requests import limit_of_new

KeyRecord = Record[AccessKeySpec, StandingStatus]

_TEN_YEARS_S = 10 * 366 * 24 * 3600


class Keys:
    """Make, look at, change, rotate and revoke keys. A secret is shown once, by the answer that
    makes it.
    """

    def __init__(
        self,
        store: StateStore,
        identities: Identities,
        users: Users,
        clock: Clock,
        settings: KeySettings,
    ) -> None:
        self._store = store
        self._identities = identities
        self._users = users
        self._clock = clock
        self._settings = settings
        self._rights = Rights(store, clock)

    def list(
        self, caller: Identity, org: str | None = None, user: str | None = None
    ) -> list[accounts.AccessKey]:
        """Keys, oldest first: those of the organisation for who manages it, else the caller's own.

        Raises:
            NotFound: There is no such organisation.
        """
        organisation = self._identities.named(caller, org)
        lines = [
            line
            for line in everything(self._store, ACCESS_KEY, SYSTEM)
            if line.owner == organisation.name
        ]
        keys = (self._store.get(ACCESS_KEY, line.key.uid) for line in lines)
        return [
            self._to_wire(key)
            for key in keys
            if key is not None and self._visible(caller, key) and user in (None, key.spec.user)
        ]

    def describe(self, caller: Identity, access_key: str) -> accounts.AccessKey:
        """One key.

        Raises:
            NotFound: There is none that the caller may see.
        """
        return self._to_wire(self._find(caller, access_key))

    def create(
        self,
        caller: Identity,
        request: accounts.AccessKeyRequest,
        org: str | None = None,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> accounts.NewAccessKey:
        """Make a key for a user, by default for the caller.

        Raises:
            Forbidden: The caller may not make keys, or not for this user.
            NotFound: There is no such user.
            Conflict: The user is disabled or has as many keys as a user may have.
            InvalidRequest: The time is out of range.
        """
        organisation = self._identities.named(caller, org)
        name = request.user or caller.user
        own = (organisation.name, name) == (caller.org, caller.user)
        permit(caller, Operation.MANAGE_OWN_KEYS if own else Operation.MANAGE_ORGANISATION)
        user = self._users.find(organisation, name)
        check_rank(caller, user.spec.role)
        if request.expires_in_s is not None:
            common.check_count("expires_in_s", request.expires_in_s, least=1, most=_TEN_YEARS_S)
        made_with = _made_with(caller, idempotency_key)
        with limit_of_new(self._store, ACCESS_KEY, SYSTEM, made_with):
            self._check_room(user)
        return self._make_key(user, request, made_with, once)

    def change(
        self,
        caller: Identity,
        access_key: str,
        change: accounts.KeyChange,
        *,
        once: Once | None = None,
    ) -> accounts.AccessKey:
        """Enable or disable a key, or the signatures of the original client or of the FDS clients
        for it.

        Raises:
            NotFound: There is none that the caller may see.
            Forbidden: The caller may only look.
            Conflict: It is the last key that can manage.
        """
        record = self._changeable(caller, access_key)

        def changed(spec: AccessKeySpec) -> AccessKeySpec:
            legacy = (
                spec.legacy_signatures
                if change.legacy_signatures is None
                else change.legacy_signatures
            )
            fds = spec.accepts_fds if change.fds_signatures is None else change.fds_signatures
            enabled = spec.enabled if change.enabled is None else change.enabled
            return replace(spec, enabled=enabled, legacy_signatures=legacy, fds_signatures=fds)

        # Without the fence, two requests that each disable one of the last two keys could leave
        # nobody able to manage.
        takes = change.enabled is False
        with self._rights.taking() if takes else contextlib.nullcontext() as fence:
            if takes:
                self._check_not_last(caller, record)
            record = self._store.change_spec(
                ACCESS_KEY, record.key.uid, changed, now=self._clock(), once=once, fence=fence
            )
        self._identities.clear()
        return self._to_wire(record)

    def rotate(
        self,
        caller: Identity,
        access_key: str,
        rotation: accounts.Rotation,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> accounts.NewAccessKey:
        """Make a new key in place of one that ends after the overlap. Until then both work.

        The new one is made first: a crash in between leaves a key too many, never one too few.

        Raises:
            NotFound: There is none that the caller may see.
            Forbidden: The caller may only look.
            Conflict: The key does not work any more.
            InvalidRequest: The overlap is out of range.
        """
        record = self._changeable(caller, access_key)
        most = self._settings.overlap_limit_s
        overlap_s = self._settings.overlap_s if rotation.overlap_s is None else rotation.overlap_s
        common.check_count("overlap_s", overlap_s, least=0, most=most)
        made_with = _made_with(caller, idempotency_key and f"{access_key}:{idempotency_key}")
        with limit_of_new(self._store, ACCESS_KEY, SYSTEM, made_with):
            if not self._to_wire(record).usable:
                raise Conflict(
                    f"{access_key} does not work any more; create a key instead", field="access_key"
                )
        user = self._users.find(self._identities.organisation(record.spec.org), record.spec.user)
        request = accounts.AccessKeyRequest(
            user=record.spec.user,
            legacy_signatures=record.spec.legacy_signatures,
            fds_signatures=record.spec.accepts_fds,
        )
        made = self._make_key(user, request, made_with, once)
        ends = self._clock() + timedelta(seconds=overlap_s)

        def ending(spec: AccessKeySpec) -> AccessKeySpec:
            return replace(spec, expires_at=min(spec.expires_at or ends, ends))

        self._store.change_spec(ACCESS_KEY, record.key.uid, ending, now=self._clock())
        self._identities.clear()
        return made

    def revoke(
        self, caller: Identity, access_key: str, *, once: Once | None = None
    ) -> accounts.AccessKey:
        """Remove a key for good.

        Raises:
            NotFound: There is none that the caller may see.
            Forbidden: The caller may only look.
            Conflict: It is the last key that can manage.
        """
        record = self._changeable(caller, access_key)
        with self._rights.taking() as fence:
            self._check_not_last(caller, record)
            record = self._store.request_delete(
                ACCESS_KEY, record.key.uid, now=self._clock(), once=once, fence=fence
            )
        # No fence is needed here: the key stopped working with the request above (see
        # ``usable``).
        self._store.delete(ACCESS_KEY, record.key.uid, fence=None)
        self._identities.clear()
        return self._to_wire(record)

    def _make_key(
        self,
        user: UserRecord,
        request: accounts.AccessKeyRequest,
        made_with: str | None,
        once: Once | None,
    ) -> accounts.NewAccessKey:
        expires = (
            None
            if request.expires_in_s is None
            else self._clock() + timedelta(seconds=request.expires_in_s)
        )
        made = self._identities.create_key(
            self._identities.organisation(user.key.org),
            user.key.name,
            legacy_signatures=request.legacy_signatures,
            fds_signatures=request.fds_signatures,
            expires_at=expires,
            idempotency_key=made_with,
            once=once,
        )
        record = self._store.find(ACCESS_KEY, SYSTEM, made.access_key)
        if record is None:  # revoked within the moment
            raise _absent(made.access_key)
        return accounts.NewAccessKey(key=self._to_wire(record), secret_key=made.secret)

    def _check_room(self, user: UserRecord) -> None:
        """Refuse more keys than a user may have.

        Raises:
            Conflict: There are as many already.
        """
        most = self._settings.per_user
        own = [
            line
            for line in everything(self._store, ACCESS_KEY, SYSTEM)
            if line.owner == user.key.org
        ]
        mine = [line for line in own if line.title == user.key.name]
        if len(mine) >= most:
            raise Conflict(
                f"{user.key.name} has {len(mine)} keys already",
                field="user",
                value=user.key.name,
                allowed=f"at most {most} keys",
                hint="revoke one that is not used any more",
            )

    def _check_not_last(self, caller: Identity, record: KeyRecord) -> None:
        user = self._users.find(self._identities.organisation(record.spec.org), record.spec.user)
        self._users.check_not_last(caller, user, None, key=record.key.name)

    def _changeable(self, caller: Identity, access_key: str) -> KeyRecord:
        permit(caller, Operation.MANAGE_OWN_KEYS)
        record = self._find(caller, access_key)
        own = (record.spec.org, record.spec.user) == (caller.org, caller.user)
        if not own:
            check_rank(caller, self._role_of(record) or Role.MEMBER)
        return record

    def _find(self, caller: Identity, access_key: str) -> KeyRecord:
        record = self._store.find(ACCESS_KEY, SYSTEM, access_key) if plausible(access_key) else None
        if record is None or not self._visible(caller, record):
            raise _absent(access_key)
        return record

    def _visible(self, caller: Identity, key: KeyRecord) -> bool:
        if caller.admin or (key.spec.org, key.spec.user) == (caller.org, caller.user):
            return True
        return key.spec.org == caller.org and permits(caller.role, Operation.MANAGE_ORGANISATION)

    def _role_of(self, key: KeyRecord) -> Role | None:
        try:
            return self._users.find(
                self._identities.organisation(key.spec.org), key.spec.user
            ).spec.role
        except NotFound:
            return None

    def _to_wire(self, key: KeyRecord) -> accounts.AccessKey:
        spec, role = key.spec, self._role_of(key)
        return accounts.AccessKey(
            access_key=key.key.name,
            org=spec.org,
            user=spec.user,
            role=(role or spec.role).value,
            enabled=spec.enabled,
            usable=self._identities.works(key),
            legacy_signatures=spec.legacy_signatures,
            fds_signatures=spec.accepts_fds,
            created_at=key.created_at,
            expires_at=spec.expires_at,
        )


def _absent(access_key: str) -> NotFound:
    return NotFound(
        f"there is no access key {access_key[:128]}", field="access_key", value=access_key[:128]
    )


def _made_with(caller: Identity, idempotency_key: str | None) -> str | None:
    """The idempotency key as it is stored: each access key has its own."""
    return idempotency_key and f"{caller.access_key}:{idempotency_key}"

"""Who is who: organisations, their numbers, and the keys that sign for them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from cloud_ml.domain.records import Kind, Record, Summary
from cloud_ml.domain.scopes import Scope
from cloud_ml.domain.tenancy import (
    ACCESS_KEY,
    ORGANISATION,
    ORGANISATION_NUMBER,
    SYSTEM,
    USER,
    AccessKeySpec,
    OrganisationNumberSpec,
    OrganisationSpec,
    Role,
    Standing,
    StandingStatus,
    UserSpec,
)
from cloud_ml.errors import AlreadyExists, Forbidden, InvalidRequest, NotFound
from cloud_ml.models import common
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.clock import Clock

UNDER_ALL = "org_id=-1, all organisations, is for lists. Name one organisation by its number."
"""Names are unique within an organisation only."""
_ORG_ID_ALLOWED = (
    "the number of your organisation; for administrators also that of another, or -1 for all"
)
_CACHE_LIMIT = 10_000
_ACCESS_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class Organisation:
    """A tenant as the use cases see it."""

    name: str
    number: int
    mail: str = ""
    default_bucket: str = ""


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """An attempt of a train job, which calls with a token of its own. ``study`` is the name of a
    study of Optuna's client that it may use beside those that it makes.
    """

    uid: str
    attempt: int
    study: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a key. Every use case takes one as its caller.

    A caller with an access token has the token's id in ``token``, and in ``scopes`` what the token
    may do. ``None`` means that the request was signed: then the user's role alone decides. ``job``
    is the job that calls, with the rights of its owner.
    """

    access_key: str
    secret: str = field(repr=False)
    organisation: Organisation
    user: str
    role: Role = Role.MEMBER
    legacy_signatures: bool = False
    fds_signatures: bool = True
    expires_at: datetime | None = None
    token: str = ""
    scopes: tuple[Scope, ...] | None = None
    token_expires_at: datetime | None = None
    job: JobAttempt | None = None

    @property
    def org(self) -> str:
        """The organisation's name: the ``org`` of every record of the caller's."""
        return self.organisation.name

    @property
    def admin(self) -> bool:
        """Whether the caller may name other organisations."""
        return self.role is Role.ADMIN


class Identities:
    """Looks up keys and organisations, and makes them.

    Answers are kept for ``ttl_s`` seconds, so a key that another server disables is refused
    everywhere soon after; changes made here count at once.
    """

    def __init__(self, store: StateStore, clock: Clock, *, ttl_s: float = 5.0) -> None:
        self._store = store
        self._clock = clock
        self._ttl = timedelta(seconds=ttl_s)
        self._era = 0
        self._keys: dict[str, tuple[datetime, Identity]] = {}
        self._organisations: dict[str, tuple[datetime, Organisation]] = {}

    def cached(self, access_key: str) -> Identity | None:
        """The identity if it was looked up a moment ago; never blocks."""
        entry, now = self._keys.get(access_key), self._clock()
        return (
            entry[1]
            if entry is not None and entry[0] > now and not _is_expired(entry[1].expires_at, now)
            else None
        )

    def find(self, access_key: str) -> Identity | None:
        """The holder of the key; ``None`` when it is unknown, or it, its user or its
        organisation may not be used.
        """
        if (known := self.cached(access_key)) is not None:
            return known
        self._keys.pop(access_key, None)
        # Read the era before the first lookup, so that a change during the lookups keeps the
        # result out of the cache.
        era = self._era
        key = self._store.find(ACCESS_KEY, SYSTEM, access_key) if plausible(access_key) else None
        if key is None or not usable(key) or _is_expired(key.spec.expires_at, self._clock()):
            return None
        user = self._store.find(USER, key.spec.org, key.spec.user)
        organisation = self._store.find(ORGANISATION, SYSTEM, key.spec.org)
        if user is None or organisation is None or not (usable(user) and usable(organisation)):
            return None
        return self._keep(identity(key, _organisation(organisation), user.spec.role), era)

    def organisation(self, name: str) -> Organisation:
        """The organisation of that name.

        Raises:
            NotFound: There is none.
        """
        entry = self._organisations.get(name)
        if entry is not None and entry[0] > self._clock():
            return entry[1]
        record = self._store.find(ORGANISATION, SYSTEM, name)
        if record is None:
            raise NotFound(f"there is no organisation {name}", field="org", value=name)
        organisation = _organisation(record)
        self._organisations[name] = (self._clock() + self._ttl, organisation)
        return organisation

    def organisations(self) -> Sequence[Organisation]:
        """Every organisation, oldest first."""
        return [
            self.organisation(line.key.name)
            for line in self._all(ORGANISATION)
            if not line.deleting
        ]

    def everybody(self) -> Iterator[Identity]:
        """The holders of all keys that work, oldest first; as they are now, not as they were
        looked up.
        """
        self.clear()
        for line in self._all(ACCESS_KEY):
            if (found := self.find(line.key.name)) is not None:
                yield found

    def works(self, key: Record[AccessKeySpec, StandingStatus]) -> bool:
        """Whether the key would be believed now."""
        return key.delete_requested_at is None and self.find(key.key.name) is not None

    def scope(self, caller: Identity, org_id: str | None) -> str | None:
        """The organisation that ``org_id`` narrows a request to; ``None`` for all of them.

        Raises:
            Forbidden: ``-1`` (all) from somebody who is no administrator.
            NotFound: An organisation that is absent or not the caller's; the two look the same.
        """
        if org_id is None or org_id in ("", str(caller.organisation.number)):
            return caller.org
        if org_id == "-1":
            if not caller.admin:
                raise Forbidden(
                    "org_id is -1, all organisations, which only an administrator may see; leave "
                    "org_id out for your own",
                    field="org_id",
                    value=org_id,
                    allowed=_ORG_ID_ALLOWED,
                )
            return None
        claim = None
        if caller.admin and org_id.isascii() and org_id.isdigit() and len(org_id) < 10:
            # Records of organisation numbers have names without leading zeros.
            claim = self._store.find(ORGANISATION_NUMBER, SYSTEM, str(int(org_id)))
        if claim is None:
            raise NotFound(
                f"there is no organisation {org_id[:40]}",
                field="org_id",
                value=org_id[:40],
                allowed=_ORG_ID_ALLOWED,
            )
        return claim.spec.org

    def named(self, caller: Identity, name: str | None) -> Organisation:
        """The organisation that a request names, by name or number; the caller's own if it names
        none.

        Raises:
            NotFound: It is absent or not the caller's; the two look the same.
        """
        own = caller.organisation
        if not name or name in (own.name, str(own.number)):
            return own
        if caller.admin and len(name) <= 63 and common.NAME.fullmatch(name):
            found = self._store.find(ORGANISATION, SYSTEM, name)
            if found is not None and found.delete_requested_at is None:
                return self.organisation(name)
            if (
                name.isdigit()
                and (claim := self._store.find(ORGANISATION_NUMBER, SYSTEM, name)) is not None
            ):
                return self.organisation(claim.spec.org)
        raise NotFound(f"there is no organisation {name[:63]}", field="org", value=name[:63])

    def name_ever(self, caller: Identity, name: str | None) -> str:
        """The name of the organisation that a request names; for an admin also of a deleted one,
        whose record stays.

        Raises:
            NotFound: As ``named``.
        """
        try:
            return self.named(caller, name).name
        except NotFound:
            if not caller.admin or not name or len(name) > 63 or not common.NAME.fullmatch(name):
                raise
            if self._store.find(ORGANISATION, SYSTEM, name) is None:
                raise
            return name

    def create_organisation(
        self, name: str, *, mail: str = "", default_bucket: str = "", once: Once | None = None
    ) -> Organisation:
        """Make an organisation with a number that nobody else has or ever had.

        Raises:
            AlreadyExists: The name is taken.
            InvalidRequest: The name is malformed or reserved.
        """
        common.check_name("org", name)
        if name == SYSTEM:
            raise InvalidRequest(
                f"the name {name} is reserved", field="org", value=name, allowed="another name"
            )
        spec = OrganisationSpec(
            number=self._claim_number(name), mail=mail, default_bucket=default_bucket
        )
        record = self._store.create(
            ORGANISATION,
            org=SYSTEM,
            name=name,
            owner=name,
            spec=spec,
            status=StandingStatus(),
            now=self._clock(),
            once=once,
        )
        return _organisation(record)

    def create_key(
        self,
        organisation: Organisation,
        user: str,
        *,
        role: Role = Role.MEMBER,
        access_key: str | None = None,
        secret: str | None = None,
        legacy_signatures: bool = False,
        fds_signatures: bool = True,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> Identity:
        """Make a key, and its user with that role if there is none; both halves are generated when
        not given.

        Raises:
            AlreadyExists: The access key is taken.
            InvalidRequest: The access key cannot travel in a header.
        """
        if access_key is not None and not plausible(access_key):
            raise common.refuse(
                "access_key", access_key, "1 to 128 letters, digits, '.', '_' or '-'"
            )
        spec = AccessKeySpec(
            org=organisation.name,
            user=user,
            secret=secret or secrets.token_urlsafe(30),
            role=role,
            legacy_signatures=legacy_signatures,
            fds_signatures=fds_signatures,
            expires_at=expires_at,
        )
        # Create the user before the key: a key without its user does not work.
        holder = self._ensure_user(organisation.name, user, role)
        record = self._store.create(
            ACCESS_KEY,
            org=SYSTEM,
            name=access_key or "AK" + secrets.token_hex(10).upper(),
            owner=organisation.name,
            spec=spec,
            status=StandingStatus(),
            now=self._clock(),
            title=user,
            idempotency_key=idempotency_key,
            once=once,
        )
        return identity(record, organisation, holder.spec.role)

    def adopt(self) -> None:
        """Make the users of keys that were there before users were. Repeating it changes
        nothing.
        """
        for line in self._all(ACCESS_KEY):
            # Only keys from before there were users have no title; later ones have the user's
            # name there.
            if not line.title and (key := self._store.get(ACCESS_KEY, line.key.uid)) is not None:
                self._ensure_user(key.spec.org, key.spec.user, key.spec.role)

    def keys(self, organisation: Organisation) -> Sequence[Identity]:
        """The organisation's keys that may be used, oldest first."""
        mine = [key for key in self._all(ACCESS_KEY) if key.owner == organisation.name]
        found = (self.find(key.key.name) for key in mine)
        return [identity for identity in found if identity is not None]

    def set_secret(self, access_key: str, secret: str) -> None:
        """Give a key another secret; the old one stops to count.

        Raises:
            NotFound: There is no such key.
        """
        record = self._store.find(ACCESS_KEY, SYSTEM, access_key)
        if record is None:
            raise NotFound(
                f"there is no access key {access_key}", field="access_key", value=access_key
            )
        self._store.change_spec(
            ACCESS_KEY, record.key.uid, lambda spec: replace(spec, secret=secret), now=self._clock()
        )
        self.clear()

    def _ensure_user(self, org: str, name: str, role: Role) -> Record[UserSpec, StandingStatus]:
        if (found := self._store.find(USER, org, name)) is not None:
            return found
        try:
            return self._store.create(
                USER,
                org=org,
                name=name,
                owner=org,
                spec=UserSpec(role),
                status=StandingStatus(),
                now=self._clock(),
            )
        except AlreadyExists:  # another server was faster
            if (found := self._store.find(USER, org, name)) is None:
                raise
            return found

    def clear(self) -> None:
        """Forget what was looked up, and what is being looked up at this moment."""
        self._era += 1
        self._keys.clear()
        self._organisations.clear()

    def _claim_number(self, name: str) -> int:
        """Claim the next free number. The same name gets the same one, also after a crash in
        between.
        """
        newest = self._store.list(ORGANISATION_NUMBER, org=SYSTEM, limit=1).items
        number = int(newest[0].key.name) + 1 if newest else 1
        while True:
            try:
                claim = self._store.create(
                    ORGANISATION_NUMBER,
                    org=SYSTEM,
                    name=str(number),
                    owner=name,
                    spec=OrganisationNumberSpec(org=name),
                    status=StandingStatus(),
                    now=self._clock(),
                    idempotency_key=f"organisation:{name}",
                )
            except AlreadyExists:  # somebody claimed it between the look and the claim
                number += 1
            else:
                return int(claim.key.name)

    def _all(self, kind: Kind[Any, Any]) -> Sequence[Summary]:
        return everything(self._store, kind, SYSTEM)

    def _keep(self, identity: Identity, era: int) -> Identity:
        if len(self._keys) >= _CACHE_LIMIT:
            self._keys.clear()
        # Add the entry first and check the era afterwards. If the check came first, another
        # thread could call ``clear`` in between.
        self._keys[identity.access_key] = (self._clock() + self._ttl, identity)
        if era != self._era:  # something changed since it was read
            self._keys.pop(identity.access_key, None)
        return identity


def everything(store: StateStore, kind: Kind[Any, Any], org: str | None) -> list[Summary]:
    """All records of a kind in an organisation (``None``: in all), oldest first: for what
    administrators make.
    """
    found: list[Summary] = []
    after: int | None = None
    while True:
        page = store.list(kind, org=org, after=after, limit=1000)
        found.extend(page.items)
        if (after := page.next) is None:
            return found[::-1]


def plausible(access_key: str) -> bool:
    """Whether it could be one: whatever a header may hold comes in here."""
    return _ACCESS_KEY.fullmatch(access_key) is not None


def usable(
    record: Record[AccessKeySpec, StandingStatus]
    | Record[OrganisationSpec, StandingStatus]
    | Record[UserSpec, StandingStatus],
) -> bool:
    """Whether nobody has disabled it or asked for its removal."""
    return (
        record.spec.enabled
        and record.status.phase is Standing.ACTIVE
        and record.delete_requested_at is None
    )


def _is_expired(at: datetime | None, now: datetime) -> bool:
    return at is not None and at <= now


def _organisation(record: Record[OrganisationSpec, StandingStatus]) -> Organisation:
    spec = record.spec
    return Organisation(record.key.name, spec.number, spec.mail, spec.default_bucket)


def identity(
    record: Record[AccessKeySpec, StandingStatus], organisation: Organisation, role: Role
) -> Identity:
    """The holder of a key whose user has that role."""
    spec = record.spec
    return Identity(
        access_key=record.key.name,
        secret=spec.secret,
        organisation=organisation,
        user=spec.user,
        role=role,
        legacy_signatures=spec.legacy_signatures,
        fds_signatures=spec.accepts_fds,
        expires_at=spec.expires_at,
    )

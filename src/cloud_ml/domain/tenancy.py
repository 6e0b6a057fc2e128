"""Organisations, the keys that sign for them, and the buckets they own: as records like all
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.records import Kind

SYSTEM = "system"
"""The organisation under which records live that belong to no tenant (organisations, keys,
buckets).
"""


class Role(StrEnum):
    """What a user may do: see ``ALLOWED``. An admin is one of the whole platform, an owner of an
    organisation.
    """

    ADMIN = "admin"
    OWNER = "owner"
    MEMBER = "member"
    VIEWER = "viewer"


class Operation(StrEnum):
    """What may be allowed or not, in the words of a refusal."""

    LOOK = "look at jobs, storage and quotas"
    RUN_JOBS = "submit, start, cancel or delete jobs"
    CHANGE_STORAGE = "change buckets and objects"
    CHANGE_SECRETS = "create or delete secrets"
    MANAGE_OWN_KEYS = "manage keys of one's own"
    APPLY_FOR_QUOTA = "apply for quota"
    MANAGE_ORGANISATION = "manage users and keys, or read the audit log"
    MANAGE_PLATFORM = "manage organisations and quotas"


_VIEWER = frozenset({Operation.LOOK})
_MEMBER = _VIEWER | {
    Operation.RUN_JOBS,
    Operation.CHANGE_STORAGE,
    Operation.CHANGE_SECRETS,
    Operation.MANAGE_OWN_KEYS,
}
_OWNER = _MEMBER | {Operation.APPLY_FOR_QUOTA, Operation.MANAGE_ORGANISATION}

ALLOWED: Mapping[Role, frozenset[Operation]] = {
    Role.VIEWER: _VIEWER,
    Role.MEMBER: _MEMBER,
    Role.OWNER: _OWNER,
    Role.ADMIN: frozenset(Operation),
}
"""The one table of rights. All but an admin's end at the own organisation, beyond which nothing
is seen to exist.
"""


def permits(role: Role, operation: Operation) -> bool:
    """Whether the role may do this."""
    return operation in ALLOWED[role]


def may_change(role: Role) -> bool:
    """Whether the role may change anything at all."""
    return ALLOWED[role] != _VIEWER


class Standing(StrEnum):
    """Whether a key, an organisation or a bucket may be used."""

    ACTIVE = "Active"
    DISABLED = "Disabled"


@dataclass(frozen=True)
class StandingStatus:
    """The status of things that simply are."""

    phase: Standing = Standing.ACTIVE


@dataclass(frozen=True)
class OrganisationSpec:
    """A tenant. ``number`` is small, unique and never reused: the engine derives user ids from
    it.
    """

    number: int
    mail: str = ""
    default_bucket: str = ""
    enabled: bool = True


@dataclass(frozen=True)
class UserSpec:
    """A person or a program. The record's name is the user's, within the organisation that is
    the record's.
    """

    role: Role = Role.MEMBER
    mail: str = ""
    enabled: bool = True


@dataclass(frozen=True)
class AccessKeySpec:
    """A signing key. The record's name is the access key; ``secret`` leaves the server once, when
    it is made.

    What the key may do is its user's role. ``role`` is what the user gets who is made for a key
    that was there before users were. Keys of before ``fds_signatures`` have ``None`` there: one
    switch was for both schemes.
    """

    org: str
    user: str
    secret: str
    role: Role = Role.MEMBER
    legacy_signatures: bool = True
    enabled: bool = True
    expires_at: datetime | None = None
    fds_signatures: bool | None = None

    @property
    def accepts_fds(self) -> bool:
        """Whether the key may be used with the signature of the FDS storage clients."""
        return self.legacy_signatures if self.fds_signatures is None else self.fds_signatures

    def __repr__(self) -> str:
        return f"AccessKeySpec(org={self.org!r}, user={self.user!r}, secret=…, role={self.role!r})"


@dataclass(frozen=True)
class BucketSpec:
    """A bucket. The record's name is the bucket's; names are unique over all organisations.

    ``owner`` is the user who made it, also the record's title, so that lists can show it.
    """

    org: str
    owner: str = ""


@dataclass(frozen=True)
class OrganisationNumberSpec:
    """Claims a number for an organisation, for ever: the record's name is the number."""

    org: str


ORGANISATION = Kind("organisation", OrganisationSpec, StandingStatus)
ORGANISATION_NUMBER = Kind("organisation_number", OrganisationNumberSpec, StandingStatus)
USER = Kind("user", UserSpec, StandingStatus)
ACCESS_KEY = Kind("access_key", AccessKeySpec, StandingStatus)
BUCKET = Kind("bucket", BucketSpec, StandingStatus)

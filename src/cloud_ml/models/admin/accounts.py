"""What is said about organisations, users, keys and the audit log, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

ROLES = ("admin", "owner", "member", "viewer")
"""What a user may be: an admin of the platform, an owner of the organisation, a member, or
somebody who only looks.
"""


@dataclass(frozen=True, kw_only=True)
class Organisation:
    """A tenant. ``org_id`` is its number, as the original wire has it."""

    name: str
    org_id: str
    enabled: bool
    mail: str = ""
    default_bucket: str = ""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class OrganisationPage:
    """Every organisation that the caller may see, oldest first."""

    items: list[Organisation]


@dataclass(frozen=True, kw_only=True)
class NewOrganisation:
    """A tenant to be made, with a bucket of its own: ``default_bucket``, or one that is named
    after it.
    """

    name: str
    mail: str = ""
    default_bucket: str = ""


@dataclass(frozen=True, kw_only=True)
class OrganisationChange:
    """What shall be different; what is left out stays."""

    enabled: bool | None = None
    mail: str | None = None
    default_bucket: str | None = None


@dataclass(frozen=True, kw_only=True)
class User:
    """A person or a program that keys belong to."""

    name: str
    org: str
    role: str
    enabled: bool
    mail: str = ""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class UserPage:
    """The users of an organisation, oldest first."""

    items: list[User]


@dataclass(frozen=True, kw_only=True)
class NewUser:
    """A user to be made. It has no key yet."""

    name: str
    role: str = "member"
    mail: str = ""


@dataclass(frozen=True, kw_only=True)
class UserChange:
    """What shall be different; what is left out stays."""

    role: str | None = None
    enabled: bool | None = None
    mail: str | None = None


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """A key as it is shown: never with its secret. ``usable``: it, its user and its organisation
    are enabled.
    """

    access_key: str
    org: str
    user: str
    role: str
    enabled: bool
    usable: bool
    legacy_signatures: bool
    created_at: datetime
    expires_at: datetime | None = None
    fds_signatures: bool = True


@dataclass(frozen=True, kw_only=True)
class AccessKeyPage:
    """Keys, oldest first."""

    items: list[AccessKey]


@dataclass(frozen=True, kw_only=True)
class NewAccessKey:
    """A key that has just been made. Nobody can ask for ``secret_key`` again."""

    key: AccessKey
    secret_key: str

    def __repr__(self) -> str:
        return f"NewAccessKey(key={self.key!r}, secret_key=…)"


@dataclass(frozen=True, kw_only=True)
class AccessKeyRequest:
    """A key for ``user`` (by default the caller) that is good for ``expires_in_s`` seconds (by
    default for ever).

    ``legacy_signatures`` accepts the signature of the original client for it, ``fds_signatures``
    that of FDS clients.
    """

    user: str = ""
    expires_in_s: int | None = None
    legacy_signatures: bool = False
    fds_signatures: bool = True


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """What shall be different; what is left out stays."""

    enabled: bool | None = None
    legacy_signatures: bool | None = None
    fds_signatures: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """For ``overlap_s`` seconds the old key works beside the new one; left out, for as long as
    the server likes.
    """

    overlap_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """Who did what, when and from where. ``outcome`` is ``done``, or the code of the error that
    refused it.

    ``change`` says from what to what, such as ``role: member → owner``. Creations and refused
    changes have what was asked for, such as ``role: owner``. It is empty where nothing was changed.
    """

    id: int
    at: datetime
    org: str
    user: str
    key: str
    address: str
    request: str
    operation: str
    target: str
    outcome: str
    change: str = ""


@dataclass(frozen=True, kw_only=True)
class AuditPage:
    """Entries of the audit log, newest first. ``next`` goes into ``after``."""

    items: list[AuditLine]
    next: int | None = None

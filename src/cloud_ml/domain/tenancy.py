"""Organisations, the keys that sign for them, and the buckets they own: as records like all others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloud_ml.domain.records import Kind

SYSTEM = "system"
"""The organisation under which records live that belong to no tenant (organisations, keys, buckets)."""


class Role(StrEnum):
    """What a key may do. An admin may name other organisations; a member sees its own."""

    ADMIN = "admin"
    MEMBER = "member"


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
    """A tenant. ``number`` is small, unique and never reused: the engine derives user ids from it."""

    number: int
    mail: str = ""
    default_bucket: str = ""


@dataclass(frozen=True)
class AccessKeySpec:
    """A signing key. The record's name is the access key; ``secret`` never leaves the server."""

    org: str
    user: str
    secret: str
    role: Role = Role.MEMBER
    legacy_signatures: bool = True

    def __repr__(self) -> str:
        return f"AccessKeySpec(org={self.org!r}, user={self.user!r}, secret=…, role={self.role!r})"


@dataclass(frozen=True)
class BucketSpec:
    """A bucket. The record's name is the bucket's; names are unique over all organisations."""

    org: str


@dataclass(frozen=True)
class OrganisationNumberSpec:
    """Claims a number for an organisation, for ever: the record's name is the number."""

    org: str


ORGANISATION = Kind("organisation", OrganisationSpec, StandingStatus)
ORGANISATION_NUMBER = Kind("organisation_number", OrganisationNumberSpec, StandingStatus)
ACCESS_KEY = Kind("access_key", AccessKeySpec, StandingStatus)
BUCKET = Kind("bucket", BucketSpec, StandingStatus)

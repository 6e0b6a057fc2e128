"""Access tokens as records: what the server keeps of each. Their text is not among it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from cloud_ml.domain.records import Kind
from cloud_ml.domain.tenancy import StandingStatus


@dataclass(frozen=True)
class AccessTokenSpec:
    """A token. The record's name is its id, the record's title its user.

    ``digest`` is the SHA-256 of the token's text, in hex. The token works only while the access key
    works that made it: ``key_uid`` tells this key from a later one of the same name. ``parent`` is
    the token that made this one, and empty if a signed request did; a token ends with its parent.
    """

    org: str
    user: str
    access_key: str
    key_uid: str
    digest: str = field(repr=False)
    scopes: tuple[str, ...] = ()
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    parent: str = ""
    note: str = ""


CALLS_MODELS = "calls=models"
"""Finds the tokens that concern model services."""


def model_scopes(spec: AccessTokenSpec) -> tuple[str, ...]:
    """The scopes of a token that concern model services."""
    return tuple(scope for scope in spec.scopes if scope.startswith("models:"))


def user_tag(org: str, user: str) -> str:
    """Finds the tokens of a user."""
    return f"user={org}/{user}"


def _tags(spec: AccessTokenSpec) -> Collection[str]:
    tags = [user_tag(spec.org, spec.user), f"parent={spec.parent}"]
    return [*tags, CALLS_MODELS] if model_scopes(spec) else tags


ACCESS_TOKEN = Kind("access_token", AccessTokenSpec, StandingStatus, spec_tags=_tags)

"""Access tokens over HTTP: bearer tokens for programs without the SDK."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class AccessToken:
    """A token as it is shown, without its text.

    ``state`` is ``usable``, ``expired``, ``revoked`` or ``not usable``; the last one means that its
    access key, its user or its organisation is disabled or gone. ``access_key`` is the key that
    made it.
    """

    id: str
    org: str
    user: str
    access_key: str
    scopes: list[str]
    state: str
    note: str = ""
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AccessTokenPage:
    """Tokens, oldest first."""

    items: list[AccessToken]


@dataclass(frozen=True, kw_only=True)
class NewAccessToken:
    """A token to be made: what it may do and for how many seconds. ``note`` reminds you of what
    it is for.
    """

    scopes: list[str]
    expires_in_s: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CreatedAccessToken:
    """A token that has just been made. ``token`` is its text, which the server does not keep."""

    info: AccessToken
    token: str

    def __repr__(self) -> str:
        return f"CreatedAccessToken(info={self.info!r}, token=…)"

"""What the modern surface answers about the server and about the caller."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_ml.models.storage.objects import PRESIGN_LIMIT_S


@dataclass(frozen=True, kw_only=True)
class WhoAmI:
    """Whom the server takes the caller for. ``keeps_git``: jobs keep facts of git that are sent.

    ``scopes`` are those of the access token that was sent; ``None`` for a signed request, which the
    role alone limits.
    """

    org: str
    org_id: str
    user: str
    role: str
    default_bucket: str
    keeps_git: bool = True
    scopes: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """What answers: its version and what this machine gives to jobs.

    ``isolation`` maps a fence (sandbox, limits, network, …) to what is in force; ``missing`` lists
    sentences that say what the machine lacks and how to get it. ``presign_limit_s`` is how long a link
    to an object may be good for.
    """

    version: str
    isolation: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    presign_limit_s: float = PRESIGN_LIMIT_S

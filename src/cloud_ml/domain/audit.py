"""Who did what, when and from where: entries that are written once and never changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

DONE = "done"
"""The outcome of what was carried out. Every other outcome is the code of an error."""

MOST_CHARACTERS = 512
"""Longest text of an entry; targets may hold whatever a path holds."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request that changes something, or was refused when it tried. Holds no secret.

    ``at`` is when it was carried out or refused, which may be long after the request began.
    ``org``, ``user`` and ``key`` are the caller's; ``key`` is the id of an access token where one
    was used. ``operation`` is such as ``jobs.submit``; ``target`` is what it was about, by name;
    ``request`` is the id that the answer carried. ``change`` says from what to what a record was
    changed (see ``spec_changes``), or what a creation or a refused change asked for.
    """

    at: datetime
    org: str
    user: str
    key: str
    address: str
    request: str
    operation: str
    target: str = ""
    outcome: str = DONE
    id: int = 0
    change: str = ""

    def about(self, name: str) -> AuditEntry:
        """The entry with its target, if none but an organisation (``@org``) is known yet."""
        return replace(self, target=name + self.target) if self.target[:1] in ("", "@") else self


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted. ``operation`` and ``target`` are beginnings; ``since`` is
    included, ``until`` not.
    """

    org: str | None = None
    user: str | None = None
    key: str | None = None
    operation: str | None = None
    target: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, entry: AuditEntry) -> bool:
        """Whether the entry is one of them."""
        same = all(
            condition is None or condition == fact
            for condition, fact in (
                (self.org, entry.org),
                (self.user, entry.user),
                (self.key, entry.key),
                (self.outcome, entry.outcome),
            )
        )
        return (
            same
            and entry.operation.startswith(self.operation or "")
            and entry.target.startswith(self.target or "")
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )

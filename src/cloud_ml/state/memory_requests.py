"""Requests in memory, beside ``state.memory``: their tokens and idempotency keys, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import Kind
from cloud_ml.state import rules
from cloud_ml.state.base import Once, Page


class MemoryRequests:
    """What a store remembers of requests. Whoever calls it holds the lock of that store.

    Args:
        clock: Dates the entries of changes in the audit log.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._tokens: dict[str, datetime] = {}
        self._keys: dict[tuple[str, str, str], tuple[str, datetime]] = {}
        self._audit: list[AuditEntry] = []
        self._audit_id = 0

    def check_unseen(self, once: Once | None) -> None:
        """Refuse a token that was used.

        Raises:
            Unauthenticated: It was.
        """
        if once is not None and once.token in self._tokens:
            raise rules.seen_before()

    def use_up(self, once: Once | None, name: str) -> None:
        """Note the token of a mutation, and in the audit log whose it was."""
        if once is not None:
            self._tokens[once.token] = once.expires_at
            if once.entry is not None:
                self.add_audit_now(once.entry.about(name))

    def made_by(self, kind: Kind[Any, Any], org: str, key: str | None) -> str | None:
        """The uid of the record that an idempotency key has made, dead or alive."""
        if key is None or (use := self._keys.get((org, kind.name, key))) is None:
            return None
        return use[0]

    def add_key(
        self, kind: Kind[Any, Any], org: str, key: str | None, *, uid: str, now: datetime
    ) -> None:
        """Note which record an idempotency key has made."""
        if key is not None:
            self._keys[org, kind.name, key] = (uid, now)

    def add_audit_now(self, entry: AuditEntry) -> None:
        """Add the entry of a change to the audit log, with the time of this change."""
        self.add_audit(replace(entry, at=self._clock()))

    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log."""
        self._audit_id += 1
        self._audit.append(replace(rules.bound_entry(entry), id=self._audit_id))

    def audit(
        self, audit_filter: AuditFilter, *, after: int | None, limit: int
    ) -> Page[AuditEntry]:
        """A page of the audit log, newest entries first."""
        found = [
            one
            for one in self._audit[::-1]
            if audit_filter.matches(one) and (after is None or one.id < after)
        ]
        return Page(tuple(found[:limit]), found[limit - 1].id if len(found) > limit else None)

    def prune(self, now: datetime, retention: rules.Retention) -> None:
        """Forget what is over its time."""
        self._tokens = {token: at for token, at in self._tokens.items() if at > now}
        oldest_key = now - retention.idempotency_keys
        self._keys = {key: use for key, use in self._keys.items() if use[1] > oldest_key}
        if retention.audit is not None:
            self._audit = [entry for entry in self._audit if entry.at > now - retention.audit]

"""Who may read the audit log: an owner what the organisation did, an admin everything. Blocking."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.tenancy import Operation
from cloud_ml.models.admin.accounts import AuditLine, AuditPage
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.access.permissions import permit

EVERYBODY = "-1"
"""Names all organisations, as on the original wire."""


class AuditLog:
    """Reads the log. Nothing here writes it: that happens in the transaction of what it tells
    of.
    """

    def __init__(self, store: StateStore, identities: Identities) -> None:
        self._store = store
        self._identities = identities

    def read(
        self,
        caller: Identity,
        audit_filter: AuditFilter,
        *,
        after: int | None = None,
        limit: int = 50,
    ) -> AuditPage:
        """A page of entries, newest first. ``audit_filter.org`` is a name or a number; the default
        is the caller's own.

        Raises:
            Forbidden: The caller manages no organisation.
            NotFound: The organisation is absent or not the caller's.
        """
        permit(caller, Operation.MANAGE_ORGANISATION)
        everybody = audit_filter.org == EVERYBODY and caller.admin
        org = None if everybody else self._identities.named(caller, audit_filter.org).name
        page = self._store.audit(replace(audit_filter, org=org), after=after, limit=limit)
        return AuditPage(items=[_line(entry) for entry in page.items], next=page.next)


def _line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        id=entry.id,
        at=entry.at,
        org=entry.org,
        user=entry.user,
        key=entry.key,
        address=entry.address,
        request=entry.request,
        operation=entry.operation,
        target=entry.target,
        outcome=entry.outcome,
        change=entry.change,
    )

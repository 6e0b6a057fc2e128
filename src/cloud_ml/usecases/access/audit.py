"""Who may read the audit log: an owner what the organisation did, an admin everything. Blocking."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from cloud_ml import errors
from cloud_ml.domain.audit import DONE, AuditEntry, AuditFilter
from cloud_ml.domain.tenancy import Operation
from cloud_ml.models import common
from cloud_ml.models.admin.accounts import AuditLine, AuditPage
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.access.permissions import permit

EVERYBODY = "-1"
"""Names all organisations, as on the original wire."""
OUTCOMES = (
    DONE,
    *sorted(
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RequestError)
    ),
)
"""What an entry's outcome may be: only refusals of requests are noted."""
_LONGEST_WORD = 63
_MOST_MATCHES = 3


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
        operations: Collection[str] = (),
    ) -> AuditPage:
        """A page of entries, newest first. ``audit_filter.org`` is a name or a number; the default
        is the caller's own. ``operations`` are the names that entries may have, if they are known.

        Raises:
            Forbidden: The caller manages no organisation.
            NotFound: The organisation is absent or not the caller's.
            InvalidRequest: There is no such outcome, or no operation begins so.
        """
        permit(caller, Operation.MANAGE_ORGANISATION)
        if audit_filter.outcome is not None:
            _check_outcome(audit_filter.outcome)
        everybody = audit_filter.org == EVERYBODY and caller.admin
        org = None if everybody else self._identities.name_ever(caller, audit_filter.org)
        page = self._store.audit(replace(audit_filter, org=org), after=after, limit=limit)
        if not page.items and after is None:
            # Not before the search: entries of an older version may have names that are gone.
            _check_operation(audit_filter.operation, operations)
        return AuditPage(items=[_line(entry) for entry in page.items], next=page.next)


def _check_operation(beginning: str | None, operations: Collection[str]) -> None:
    names = sorted(operations)
    if not beginning or not names or any(name.startswith(beginning) for name in names):
        return
    groups = sorted({name.partition(".")[0] + "." for name in names})
    near = _near_operations(beginning[:_LONGEST_WORD].lower(), names, groups)
    allowed = f"the name of an operation or its beginning: {', '.join(groups)}"
    raise common.refuse("operation", beginning, allowed, suggestion=" or ".join(near))


def _near_operations(word: str, names: Sequence[str], groups: Sequence[str]) -> list[str]:
    group, _, verb = word.partition(".")
    if not verb:
        verb_matches = [name for name in names if name.partition(".")[2] == group]
        return verb_matches[:_MOST_MATCHES] or get_close_matches(
            f"{group}.", groups, n=_MOST_MATCHES
        )
    if word in names:
        return [word]
    return get_close_matches(word, names, n=_MOST_MATCHES, cutoff=0.75)


def _check_outcome(outcome: str) -> None:
    if outcome in OUTCOMES:
        return
    near = get_close_matches(outcome[:_LONGEST_WORD], OUTCOMES, n=1)
    raise common.refuse("outcome", outcome, ", ".join(OUTCOMES), suggestion="".join(near))


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

"""What the audit log says of a request: who, from where, which operation, on what."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from starlette.requests import Request
from starlette.types import Scope

from cloud_ml.auth import bearer
from cloud_ml.domain.audit import AuditEntry
from cloud_ml.errors import CloudMlError, RequestError
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.offload import Offload

logger = logging.getLogger(__name__)

_SCOPE = "cloud_ml.audit"
_ROOMS: Mapping[str, str] = {
    "train": "jobs",
    "buckets": "storage",
    "objects": "storage",
    "accounts": "quota",
}
"""Modules of the original clients' rooms, and what the same things are called elsewhere."""
_SAME: Mapping[str, str] = {
    "storage.create": "storage.create_bucket",
    "quota.set_quota": "quota.update",
    "quota.application": "quota.apply",
}
"""Operations that have another name in those rooms."""


def begin(request: Request, caller: Identity, now: datetime) -> None:
    """Prepare the entry of a request that wants to change something; it is found on the scope
    from here on.
    """
    scope = request.scope
    scope[_SCOPE] = AuditEntry(
        at=now,
        org=caller.org,
        user=caller.user,
        key=caller.token or caller.access_key,
        address=request.client.host if request.client else "",
        request=scope.get("request_id", ""),
        operation=operation_of(scope),
        target=_target(request),
    )


def entry_of(request: Request) -> AuditEntry | None:
    """The entry of a request that wants to change something."""
    entry: AuditEntry | None = request.scope.get(_SCOPE)
    return entry


async def note_refusal(
    request: Request, error: CloudMlError, store: StateStore, offload: Offload, now: datetime
) -> None:
    """Note that a known caller's change was refused ``now``. Fails silently: the answer must not
    depend on it.
    """
    entry = entry_of(request)
    if entry is None or not isinstance(error, RequestError):
        return
    try:
        await offload(store.add_audit, replace(entry, at=now, outcome=error.code))
    except CloudMlError:
        logger.warning("a refusal could not be noted in the audit log", exc_info=True)


def operation_of(scope: Scope) -> str:
    """Such as ``jobs.submit``: the same whichever surface was used."""
    endpoint = scope.get("cloud_ml.operation") or scope.get("endpoint")
    if endpoint is None:
        return ""
    module = str(endpoint.__module__).rpartition(".")[2]
    name = f"{_ROOMS.get(module, module)}.{endpoint.__name__}"
    return _SAME.get(name, name)


def _target(request: Request) -> str:
    """The path's parameters; an organisation that the query names stands behind them."""
    target = "/".join(
        bearer.without_secrets(str(part)) for part in request.path_params.values()
    ).strip("/")
    org = request.query_params.get("org") or request.query_params.get("org_id")
    return f"{target}@{org}" if org else target

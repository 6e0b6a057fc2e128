"""What the audit log says of a request: who, from where, which operation, on what."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.types import Scope

from cloud_ml.api import documents
from cloud_ml.auth import bearer
from cloud_ml.domain.audit import AuditEntry
from cloud_ml.errors import CloudMlError, RequestError
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.offload import Offload

logger = logging.getLogger(__name__)

_SCOPE = "cloud_ml.audit"
_BODY = "cloud_ml.audit_body"
_ROOMS: Mapping[str, str] = {
    "train": "jobs",
    "buckets": "storage",
    "objects": "storage",
    "accounts": "quota",
    "hp": "studies",
    "model": "models",
    "secret": "secrets",
    "tensorboard": "tensorboards",
}
"""Modules of the original clients' rooms, and what the same things are called elsewhere."""
_SAME: Mapping[str, str] = {
    "storage.create": "storage.create_bucket",
    "quota.set_quota": "quota.update",
    "quota.application": "quota.apply",
    "studies.submit": "studies.create",
}
"""Operations that have another name in those rooms."""
_NAMES = ("job_name", "model_name", "hp_name", "tensorboard_name", "name", "user")
"""Fields of a document that name what is to be created."""
_REQUESTED: Mapping[str, Mapping[str, str]] = {
    "admin.create_user": {"role": "member"},
    "admin.change_user": {"role": "", "enabled": ""},
    "admin.create_org": {"default_bucket": ""},
    "admin.change_org": {"enabled": "", "default_bucket": ""},
    "admin.create_key": {"user": "", "expires_in_s": "", "legacy_signatures": ""},
    "admin.change_key": {"enabled": "", "legacy_signatures": "", "fds_signatures": ""},
    "tokens.create": {"scopes": "", "expires_in_s": ""},
    "quota.update": dict.fromkeys(("train", "model", "dev", "total", "storage", "points"), ""),
    "quota.apply": dict.fromkeys(
        ("service", "cpu", "memory", "gpu", "count", "storage", "points"), ""
    ),
}
"""Fields of documents that the log shows, with their defaults; an empty default is not shown. None
of them holds a secret.
"""
_OPERATIONS: dict[Any, str] = {}
"""Names of the operations of endpoints that are made from a description."""
_LONGEST_DOCUMENT = 64 * 1024
"""Longer documents are not read for the log: a refused caller decides how long they are."""
_LONGEST_VALUE = 100
_MOST_LIMITS = 4
"""Limits of a kind of work: cores, memory, GPUs and their number."""


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


def note_body(request: Request, body: bytes) -> None:
    """Keep the body for the entry of a refusal; the entry says what it asks for, done or not."""
    scope = request.scope
    entry = entry_of(request)
    if entry is None or not body:
        return
    scope[_BODY] = body
    if (shown := _REQUESTED.get(entry.operation)) is not None:
        scope[_SCOPE] = replace(entry, change=_requested_change(shown, _document(request)))


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
    entry = replace(entry.about(_named_in(_document(request))), at=now, outcome=error.code)
    try:
        await offload(store.add_audit, entry)
    except CloudMlError:
        logger.warning("a refusal could not be noted in the audit log", exc_info=True)


def name_operation(endpoint: Any, name: str) -> None:
    """Say what an endpoint does whose function and module do not say it, such as
    ``studies.stop``.
    """
    _OPERATIONS[endpoint] = name


def operation_of(scope: Scope) -> str:
    """Such as ``jobs.submit``: the same whichever surface was used."""
    endpoint = scope.get("cloud_ml.operation") or scope.get("endpoint")
    if endpoint is None:
        return ""
    if endpoint in _OPERATIONS:
        return _OPERATIONS[endpoint]
    module = str(endpoint.__module__).rpartition(".")[2]
    name = f"{_ROOMS.get(module, module)}.{endpoint.__name__}"
    return _SAME.get(name, name)


def operations_of(endpoints: Iterable[Any]) -> frozenset[str]:
    """The names of operations that the log may have, for those who ask for entries by them."""
    return frozenset(operation_of({"endpoint": endpoint}) for endpoint in endpoints)


def _target(request: Request) -> str:
    """The path's parameters; an organisation that the query names stands behind them."""
    target = "/".join(
        bearer.without_secrets(str(part)) for part in request.path_params.values()
    ).strip("/")
    org = request.query_params.get("org") or request.query_params.get("org_id")
    return f"{target}@{org}" if org else target


def _document(request: Request) -> dict[str, Any]:
    """The body as an object; empty where it is none, or too long."""
    body: bytes = request.scope.get(_BODY, b"")
    if not 0 < len(body) <= _LONGEST_DOCUMENT:
        return {}
    try:
        return documents.read_object(body)
    except CloudMlError:
        return {}


def _named_in(document: Mapping[str, Any]) -> str:
    names = (document.get(field) for field in _NAMES)
    return next((_bound(name) for name in names if isinstance(name, str) and name), "")


def _requested_change(shown: Mapping[str, str], document: Mapping[str, Any]) -> str:
    """Such as ``role: owner``, or ``train.cpu: 32``."""
    parts: list[str] = []
    for field, default in shown.items():
        value = document.get(field)
        if isinstance(value, dict):
            inner = list(value.items())[:_MOST_LIMITS]
            parts += [f"{field}.{_bound(name)}: {_text(part)}" for name, part in inner]
        elif text := _text(value) if value is not None else default:
            parts.append(f"{field}: {text}")
    return ", ".join(parts)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_bound(part) for part in value[:10] if isinstance(part, str))
    if isinstance(value, bool):
        return str(value).lower()
    return _bound(str(value)) if isinstance(value, (str, int, float)) else "not readable"


def _bound(text: str) -> str:
    text = bearer.without_secrets(text)
    return text[:_LONGEST_VALUE] + "…" if len(text) > _LONGEST_VALUE else text

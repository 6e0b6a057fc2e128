"""``/api/v1/admin/audit``: who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.audit import AuditFilter
from cloud_ml.models import codec, common
from cloud_ml.models.admin.accounts import AuditPage

router = APIRouter(
    prefix="/api/v1/admin/audit",
    tags=["admin"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("", responses=answers(AuditPage))
async def read(
    here: Here,
    request: Request,
    call: Signed,
    *,
    org: str | None = None,
    user: str | None = None,
    key: str | None = None,
    operation: str | None = None,
    target: str | None = None,
    outcome: str | None = None,
    since: str | None = None,
    until: str | None = None,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1)] = 50,
) -> Response:
    """Entries of the audit log, newest first: the organisation's, or for an admin with ``org=-1``
    everybody's.

    ``operation`` and ``target`` are beginnings, such as ``jobs.``; ``since`` and ``until`` are
    times. An ``operation`` that there is not is refused.
    """
    check_limit(limit, here.settings.list_page_limit)
    audit_filter = AuditFilter(
        org, user, key, operation, target, outcome, _moment("since", since), _moment("until", until)
    )
    page = await here.offload(
        here.audit.read,
        call.caller,
        audit_filter,
        after=after,
        limit=limit,
        operations=request.app.state.audited_operations,
    )
    return documents.answer(page)


def _moment(field: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return codec.parse_time(text)
    except (ValueError, OverflowError):
        raise common.refuse(field, text, "a time such as 2026-01-31T12:00:00Z") from None

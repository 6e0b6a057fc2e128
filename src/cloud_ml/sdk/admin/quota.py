# Made of aio/admin/quota.py by tools/twins.py: change that one, then run `make format`.
"""Quotas: what an organisation may have at once, what it has, and applications for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cloud_ml.models import codec
from cloud_ml.models.admin.quota import (
    Application,
    ApplicationPage,
    LimitsChange,
    OrgQuota,
    QuotaPage,
)
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import json_request, segment
from cloud_ml.sdk.transport import Transport

T = TypeVar("T")
_PATH = "/api/v1/admin/quota"


class Quota:
    """Limits and their use. ``org`` is an organisation's name, by default the caller's own; ``-1``
    is all, for admins.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent (or somebody else's), ``InvalidRequest`` for a wrong value, and ``CloudMlError`` as
    ``Transport.json`` does.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def show(self, *, org: str | None = None) -> list[OrgQuota]:
        """Quotas with what is used of them."""
        return self._ask(QuotaPage, "GET", "", query={"org": org}).items

    def set(
        self,
        org: str,
        *,
        train: LimitsChange | None = None,
        model: LimitsChange | None = None,
        dev: LimitsChange | None = None,
        total: LimitsChange | None = None,
        storage: str | None = None,
        points: str | None = None,
    ) -> OrgQuota:
        """Set limits, for admins; what is left out stays. See ``models.admin.quota`` for how amounts
        are written.
        """
        kinds = {"train": train, "model": model, "dev": dev, "total": total}
        document: dict[str, Any] = {
            kind: {name: text for name, text in codec.encode(limits).items() if text is not None}
            for kind, limits in kinds.items()
            if limits is not None
        }
        if storage is not None:
            document["storage"] = storage
        if points is not None:
            document["points"] = points
        try:
            return self._ask(OrgQuota, "PUT", f"/{segment(org)}", document)
        except AlreadyCarriedOut:
            return self.show(org=org)[0]

    def apply(
        self,
        service: str,
        *,
        cpu: str | None = None,
        memory: str | None = None,
        gpu: str | None = None,
        mail: str = "",
        org: str | None = None,
    ) -> Application:
        """Ask for other limits for ``jobs``, ``models`` or ``dev``. Nothing changes until an admin
        approves.

        What is left out stays.
        """
        amounts = {"cpu": cpu, "memory": memory, "gpu": gpu}
        document = {
            "service": service,
            "mail": mail,
            **{name: text for name, text in amounts.items() if text is not None},
        }
        try:
            return self._ask(Application, "POST", "/applications", document, query={"org": org})
        except AlreadyCarriedOut:
            found = self.applications(org=org)
        alike = [each for each in found if (each.service, each.mail) == (service, mail)]
        return max(alike, key=lambda each: each.created_at)

    def applications(self, *, org: str | None = None) -> list[Application]:
        """Applications, newest first: the organisation's, or for an admin everybody's."""
        return self._ask(ApplicationPage, "GET", "/applications", query={"org": org}).items

    def approve(self, application: str) -> Application:
        """Set the limits that an application asks for."""
        return self._decide(application, "approve")

    def decline(self, application: str) -> Application:
        """Turn an application down."""
        return self._decide(application, "decline")

    def _decide(self, application: str, verb: str) -> Application:
        try:
            return self._ask(Application, "POST", f"/applications/{segment(application)}/{verb}")
        except AlreadyCarriedOut:
            found = self.applications()
        return next(each for each in found if each.id == application)

    def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
    ) -> T:
        request = json_request(method, _PATH + path, document, query=query, once=method != "GET")
        return self._transport.ask(kind, request)

"""Organisations, users, keys and the audit log, for those who manage them.

::

    admin = AsyncCloudMlClient().admin
    await admin.create_user("mei", role="member")
    made = await admin.create_key("mei")
    print(made.key.access_key, made.secret_key)     # the secret is told here and nowhere else
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models import codec
from cloud_ml.models.admin.accounts import (
    AccessKey,
    AccessKeyPage,
    AuditLine,
    AuditPage,
    NewAccessKey,
    Organisation,
    OrganisationPage,
    User,
    UserPage,
)
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import json_request, segment

T = TypeVar("T")
_PATH = "/api/v1/admin"
_PAGE = 200


class AsyncAdmin:
    """What the caller may manage. ``org`` is an organisation's name, by default the caller's own.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent (or somebody else's), ``InvalidRequest`` for a wrong value, and ``CloudMlError`` as
    ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    # ── organisations ─────────────────────────────────────────────────────────────────────────

    async def list_orgs(self) -> list[Organisation]:
        """Every organisation that the caller may see."""
        return (await self._ask(OrganisationPage, "GET", "orgs")).items

    async def describe_org(self, name: str) -> Organisation:
        """One organisation, by name or number."""
        return await self._ask(Organisation, "GET", f"orgs/{segment(name)}")

    async def create_org(
        self, name: str, *, mail: str = "", default_bucket: str = ""
    ) -> Organisation:
        """Make an organisation, with a bucket that is named after it unless ``default_bucket``
        says otherwise.
        """
        document = {"name": name, "mail": mail, "default_bucket": default_bucket}
        try:
            return await self._ask(Organisation, "POST", "orgs", document)
        except AlreadyCarriedOut:
            return await self.describe_org(name)

    async def change_org(
        self,
        name: str,
        *,
        enabled: bool | None = None,
        mail: str | None = None,
        default_bucket: str | None = None,
    ) -> Organisation:
        """Enable or disable an organisation, or change what is known of it."""
        document = {"enabled": enabled, "mail": mail, "default_bucket": default_bucket}
        try:
            return await self._ask(Organisation, "PATCH", f"orgs/{segment(name)}", document)
        except AlreadyCarriedOut:
            return await self.describe_org(name)

    async def delete_org(self, name: str) -> Organisation:
        """Remove an organisation that is disabled and has neither jobs nor objects."""
        return await self._ask(Organisation, "DELETE", f"orgs/{segment(name)}")

    # ── users ─────────────────────────────────────────────────────────────────────────────────

    async def list_users(self, *, org: str | None = None) -> list[User]:
        """The users of an organisation."""
        return (await self._ask(UserPage, "GET", "users", query={"org": org})).items

    async def describe_user(self, name: str, *, org: str | None = None) -> User:
        """One user."""
        return await self._ask(User, "GET", f"users/{segment(name)}", query={"org": org})

    async def create_user(
        self, name: str, *, role: str = "member", mail: str = "", org: str | None = None
    ) -> User:
        """Make a user, who has no key yet."""
        try:
            return await self._ask(
                User,
                "POST",
                "users",
                {"name": name, "role": role, "mail": mail},
                query={"org": org},
            )
        except AlreadyCarriedOut:
            return await self.describe_user(name, org=org)

    async def change_user(
        self,
        name: str,
        *,
        role: str | None = None,
        enabled: bool | None = None,
        mail: str | None = None,
        org: str | None = None,
    ) -> User:
        """Give a user another role or mail address, or enable or disable it."""
        document = {"role": role, "enabled": enabled, "mail": mail}
        try:
            return await self._ask(
                User, "PATCH", f"users/{segment(name)}", document, query={"org": org}
            )
        except AlreadyCarriedOut:
            return await self.describe_user(name, org=org)

    async def delete_user(self, name: str, *, org: str | None = None) -> User:
        """Remove a user and its keys. Its jobs and objects stay."""
        return await self._ask(User, "DELETE", f"users/{segment(name)}", query={"org": org})

    # ── keys ──────────────────────────────────────────────────────────────────────────────────

    async def list_keys(
        self, *, user: str | None = None, org: str | None = None
    ) -> list[AccessKey]:
        """Keys without their secrets: the organisation's for who manages it, else the caller's
        own.
        """
        return (
            await self._ask(AccessKeyPage, "GET", "keys", query={"org": org, "user": user})
        ).items

    async def describe_key(self, access_key: str) -> AccessKey:
        """One key."""
        return await self._ask(AccessKey, "GET", f"keys/{segment(access_key)}")

    async def create_key(
        self,
        user: str = "",
        *,
        expires_in_s: int | None = None,
        legacy_signatures: bool = False,
        fds_signatures: bool = True,
        org: str | None = None,
    ) -> NewAccessKey:
        """Create a key, by default for the caller. Its secret is in the answer and nowhere else.

        The original client needs a key with ``legacy_signatures``.
        """
        document = {
            "user": user,
            "expires_in_s": expires_in_s,
            "legacy_signatures": legacy_signatures,
            "fds_signatures": fds_signatures,
        }
        return await self._ask(
            NewAccessKey, "POST", "keys", document, query={"org": org}, once=True
        )

    async def change_key(
        self,
        access_key: str,
        *,
        enabled: bool | None = None,
        legacy_signatures: bool | None = None,
        fds_signatures: bool | None = None,
    ) -> AccessKey:
        """Enable or disable a key, or the signatures of the original client or of FDS clients
        for it.
        """
        changes = {
            "enabled": enabled,
            "legacy_signatures": legacy_signatures,
            "fds_signatures": fds_signatures,
        }
        document = {name: value for name, value in changes.items() if value is not None}
        try:
            return await self._ask(AccessKey, "PATCH", f"keys/{segment(access_key)}", document)
        except AlreadyCarriedOut:
            return await self.describe_key(access_key)

    async def rotate_key(self, access_key: str, *, overlap_s: int | None = None) -> NewAccessKey:
        """Make a key in place of another, which works on for ``overlap_s`` seconds."""
        path = f"keys/{segment(access_key)}/rotate"
        return await self._ask(NewAccessKey, "POST", path, {"overlap_s": overlap_s}, once=True)

    async def revoke_key(self, access_key: str) -> AccessKey:
        """Remove a key for good."""
        return await self._ask(AccessKey, "DELETE", f"keys/{segment(access_key)}")

    # ── the audit log ─────────────────────────────────────────────────────────────────────────

    async def audit(
        self,
        *,
        org: str | None = None,
        user: str | None = None,
        key: str | None = None,
        operation: str | None = None,
        target: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[AuditLine]:
        """Who did what, newest first, fetched as it is iterated over.

        ``operation`` and ``target`` are beginnings, such as ``jobs.``; ``org="-1"`` means
        everybody, for admins.
        """
        query = {
            "org": org,
            "user": user,
            "key": key,
            "operation": operation,
            "target": target,
            "outcome": outcome,
        }
        query |= {
            name: codec.format_time(at) for name, at in (("since", since), ("until", until)) if at
        }

        after: int | None = None
        left = sys.maxsize if limit is None else limit
        while left > 0:
            page_query = {**query, "after": after, "limit": min(left, _PAGE)}
            page = await self._ask(AuditPage, "GET", "audit", query=page_query)
            for line in page.items:
                yield line
            left -= len(page.items)
            if (after := page.next) is None:
                return

    async def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> T:
        """Ask and read the answer. Every request is repeated safely when the answer is lost.

        With ``once`` the server answers the repeated request as the first. Others raise
        ``AlreadyCarriedOut`` then.
        """
        given = (
            None
            if document is None
            else {name: value for name, value in document.items() if value is not None}
        )
        key = os.urandom(16).hex() if once else None
        request = json_request(
            method, f"{_PATH}/{path}", given, query=query, idempotency_key=key, once=method != "GET"
        )
        return await self._transport.ask(kind, request)

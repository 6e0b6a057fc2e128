"""What a caller may ask of secrets, and the values that a job gets. Blocking."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Protocol

from cloud_ml.domain.records import Event
from cloud_ml.domain.secrets import SECRET, SecretRecord, SecretSpec
from cloud_ml.domain.tenancy import Operation, StandingStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import JobSecret
from cloud_ml.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    TooLarge,
    Unavailable,
)
from cloud_ml.models import common
from cloud_ml.models.secrets.secret import (
    LONGEST_VARIABLE_BYTES,
    READY,
    UNREADABLE,
    NewSecret,
    Secret,
    SecretUse,
    uses_of,
)
from cloud_ml.settings import SecretSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity, everything
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.secret_users import users_of

_MOST_MATCHES = 3


class Sealer(Protocol):
    """Keeps values so that only servers with the sealing key can read them."""

    def seal(self, value: bytes, context: str) -> str:
        """The value as it is stored.

        Raises:
            Unavailable: There is no sealing key.
        """

    def open(self, sealed: str, context: str) -> bytes:
        """The value.

        Raises:
            Unavailable: Its sealing key is not there.
        """

    def opens(self, sealed: str) -> bool:
        """Whether the sealing key of a value is there."""


class SecretProblem(Exception):
    """An attempt cannot get a secret; ``reason`` is how it ends."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class Secrets:
    """Make, list and delete secrets. Those of another organisation are as absent as those that
    never were.
    """

    def __init__(
        self,
        store: StateStore,
        sealer: Sealer,
        clock: Clock,
        settings: SecretSettings,
        *,
        files_refusal: Callable[[], str] = str,
    ) -> None:
        """``files_refusal`` tells why jobs cannot get secrets as files on this server; empty if
        they can.
        """
        self._store = store
        self._files_refusal = files_refusal
        self._sealer = sealer
        self._clock = clock
        self._settings = settings

    def create(self, caller: Identity, request: NewSecret, *, once: Once | None = None) -> Secret:
        """Store a secret, or with ``replace`` give an existing one a new value.

        Raises:
            Forbidden: The caller may not.
            InvalidRequest: The name or the base64 text is malformed, or the value is empty.
            TooLarge: The value is larger than the operator allows.
            AlreadyExists: The name is taken.
            QuotaExceeded: The organisation has as many secrets as it may have.
            Unavailable: The server has no sealing key.
        """
        permit(caller, Operation.CHANGE_SECRETS)
        name = common.check_name("name", request.name)
        value = self._decode_data(request.data)
        spec = SecretSpec(
            self._sealer.seal(value, _context(caller.org, name)), len(value), _is_text(value)
        )
        existing, now = self._record(caller.org, name), self._clock()
        if existing is not None and request.replace:
            event = Event(now, "Replaced", f"replaced by {caller.user}")
            record = self._store.change_spec(
                SECRET, existing.key.uid, lambda _: spec, now=now, events=[event], once=once
            )
            return self._to_wire(record)
        if existing is None:
            self._check_room(caller.org)
        # also where the name is known to be taken: a request that is repeated is refused for that
        # first
        try:
            record = self._store.create(
                SECRET,
                org=caller.org,
                name=name,
                owner=caller.user,
                spec=spec,
                status=StandingStatus(),
                now=now,
                once=once,
            )
        except AlreadyExists:
            raise AlreadyExists(
                f"there is a secret {name} already",
                field="name",
                value=name,
                allowed="a name that is not in use",
                hint="To give it another value: cloudml secret create --replace.",
            ) from None
        return self._to_wire(record)

    def list(self, org: str | None) -> list[Secret]:
        """The secrets of an organisation (``None``: of all) by name, without values."""
        lines = (line for line in everything(self._store, SECRET, org) if not line.deleting)
        records = (self._store.get(SECRET, line.key.uid) for line in lines)
        found = [self._to_wire(record) for record in records if record is not None]
        return sorted(found, key=lambda one: (one.name, one.org))

    def describe(self, org: str, name: str) -> Secret:
        """One secret, without its value.

        Raises:
            NotFound: There is none.
        """
        shown = self._to_wire(self._find(org, name))
        return replace(shown, used_by=users_of(self._store, org, name))

    def delete(
        self, caller: Identity, name: str, *, org: str | None = None, once: Once | None = None
    ) -> Secret:
        """Remove a secret. Attempts that run keep what they have; later ones do not start.

        ``org`` is the organisation, checked before; by default the caller's.

        Raises:
            Forbidden: The caller may not.
            NotFound: There is none.
        """
        permit(caller, Operation.CHANGE_SECRETS)
        record = self._find(org or caller.org, name)
        shown = self._to_wire(record)
        self._store.request_delete(SECRET, record.key.uid, now=self._clock(), once=once)
        self._store.delete(SECRET, record.key.uid, fence=None)
        return shown

    def check_uses(self, org: str, secrets: Sequence[str] | None) -> None:
        """Refuse a job or service that asks for a secret that it could not get.

        Raises:
            InvalidRequest: There is no such secret, it cannot be a variable, or a file on this
                server, or there are too many.
        """
        uses = uses_of(secrets)
        most = self._settings.per_job
        if len(uses) > most:
            raise common.refuse(
                "secrets",
                f"{len(uses)} secrets",
                f"at most {most} (the operator's secrets.per_job)",
            )
        size = 0
        for number, use in enumerate(uses):
            record = self._record(org, use.name)
            if record is None:
                raise self._unknown(org, f"secrets[{number}]", use.name)
            size += record.spec.size
            if not use.variable and (why := self._files_refusal()):
                raise InvalidRequest(
                    f"the secret {use.name} cannot be a file here: {why}",
                    field=f"secrets[{number}]",
                    value=use.name,
                    allowed=f"{use.name}={use.name.upper().replace('-', '_')}, an environment "
                    "variable",
                )
            if use.variable and (why := _no_variable(record.spec)):
                raise InvalidRequest(
                    f"the secret {use.name} cannot be the variable {use.variable}: {why}",
                    field=f"secrets[{number}]", value=f"{use.name}={use.variable}",
                    allowed=f"{use.name}, which is the file /run/secrets/{use.name}",
                )  # fmt: skip
        if size > self._settings.per_job_bytes:
            raise common.refuse("secrets", f"{size} bytes in all", self._most_bytes)

    def values(self, org: str, secrets: Sequence[str] | None) -> tuple[JobSecret, ...]:
        """The values for one attempt, as they are now.

        Raises:
            SecretProblem: One is gone, cannot be read, or can no longer be a variable; or they have
                grown too large.
        """
        found = tuple(self._value(org, use) for use in uses_of(secrets))
        size = sum(len(one.value) for one in found)
        if size > self._settings.per_job_bytes:
            raise SecretProblem(
                f"the secrets have {size} bytes in all; allowed is {self._most_bytes}",
                Reason.START_FAILED,
            )
        return found

    @property
    def _most_bytes(self) -> str:
        return (
            f"at most {self._settings.per_job_bytes} bytes (the operator's secrets.per_job_bytes)"
        )

    def _value(self, org: str, use: SecretUse) -> JobSecret:
        record = self._record(org, use.name)
        if record is None:
            message = (
                f"the secret {use.name} no longer exists; "
                f"create it again: cloudml secret create {use.name}"
            )
            raise SecretProblem(message, Reason.SECRET_NOT_FOUND)
        if use.variable and (why := _no_variable(record.spec)):
            message = f"the secret {use.name} cannot be the variable {use.variable}: {why}"
            raise SecretProblem(message, Reason.SECRET_NOT_FOUND)
        try:
            value = self._sealer.open(record.spec.sealed, _context(org, use.name))
        except Unavailable as error:
            message = (
                f"the secret {use.name} is unreadable; "
                "ask the operator of the server to check its sealing key"
            )
            raise SecretProblem(message, Reason.SECRET_UNREADABLE) from error
        return JobSecret(use.name, use.variable, base64.b64encode(value).decode("ascii"))

    def _decode_data(self, data: str) -> bytes:
        """The value out of its base64 text. No message repeats it."""
        most = self._settings.size_limit_bytes
        allowed = "base64 of 1 byte or more"
        try:
            value = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidRequest("data is not base64", field="data", allowed=allowed) from None
        if not value:
            raise InvalidRequest(
                "data is empty: a secret has a value", field="data", allowed=allowed
            )
        if len(value) > most:
            message = f"the secret has {len(value)} bytes, more than this server takes"
            raise TooLarge(
                message,
                field="data",
                allowed=f"at most {most} bytes (the operator's secrets.size_limit_bytes)",
            )
        return value

    def _check_room(self, org: str) -> None:
        most = self._settings.per_org
        if self._store.count(SECRET, org=org, most=most) >= most:
            raise QuotaExceeded(
                f"{org} has {most} secrets already",
                allowed=f"at most {most} secrets (the operator's setting secrets.per_org)",
                hint="Delete secrets that are not needed any more.",
            )

    def _record(self, org: str, name: str) -> SecretRecord | None:
        """The secret; one whose deletion was cut off by a crash is removed now."""
        record = self._store.find(SECRET, org, name)
        if record is not None and record.delete_requested_at is not None:
            self._store.delete(SECRET, record.key.uid, fence=None)
            return None
        return record

    def _find(self, org: str, name: str) -> SecretRecord:
        plausible = len(name) <= 63 and common.NAME.fullmatch(name)
        record = self._record(org, name) if plausible else None
        if record is None:
            raise NotFound(f"there is no secret {name[:63]}", field="name", value=name[:63])
        return record

    def _unknown(self, org: str, field: str, name: str) -> InvalidRequest:
        near = get_close_matches(name, [one.name for one in self.list(org)], n=_MOST_MATCHES)
        ways = [f"Did you mean {' or '.join(near)}?"] if near else []
        ways.append(f"Create it: cloudml secret create {name} FILE.")
        return InvalidRequest(
            f"there is no secret {name}", field=field, value=name,
            allowed="a secret of your organisation", hint=" ".join(ways),
        )  # fmt: skip

    def _to_wire(self, record: SecretRecord) -> Secret:
        return Secret(
            name=record.key.name,
            org=record.key.org,
            owner=record.owner,
            size=record.spec.size,
            state=READY if self._sealer.opens(record.spec.sealed) else UNREADABLE,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )


def _context(org: str, name: str) -> str:
    """What a sealed value belongs to."""
    return f"{org}/{name}"


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _no_variable(spec: SecretSpec) -> str:
    """Why a secret cannot be a variable; empty if it can."""
    if not spec.text:
        return "it is not text"
    if spec.size > LONGEST_VARIABLE_BYTES:
        return f"it has {spec.size} bytes, and a variable at most {LONGEST_VARIABLE_BYTES}"
    return ""

"""What an owner may do with the users of the organisation, and an admin with all. Blocking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from cloud_ml.domain.records import Record
from cloud_ml.domain.tenancy import (
    ACCESS_KEY,
    SYSTEM,
    USER,
    Operation,
    Role,
    StandingStatus,
    UserSpec,
    permits,
)
from cloud_ml.errors import Conflict, Forbidden, NotFound, QuotaExceeded
from cloud_ml.models import common
from cloud_ml.models.admin import accounts
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import (
    Identities,
    Identity,
    Organisation,
    everything,
    usable,
)
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.access.rights import Rights
from cloud_ml.usecases.access.tokens import remove_tokens
from cloud_ml.usecases.clock import Clock

UserRecord = Record[UserSpec, StandingStatus]


class Users:
    """Make, look at, change and remove users.

    ``org`` names the organisation, by default the caller's. Whatever belongs to another one does
    not exist for an owner. Nobody takes the last key to the platform, or his own last one to the
    organisation.
    """

    def __init__(
        self, store: StateStore, identities: Identities, clock: Clock, *, most: int = 0
    ) -> None:
        self._most = most
        self._store = store
        self._identities = identities
        self._clock = clock
        self._rights = Rights(store, clock)

    def list(self, caller: Identity, org: str | None = None) -> list[accounts.User]:
        """The users, oldest first.

        Raises:
            Forbidden: The caller manages no organisation.
            NotFound: There is no such organisation.
        """
        organisation = self._get_managed(caller, org)
        found = (
            self._store.get(USER, line.key.uid)
            for line in everything(self._store, USER, organisation.name)
        )
        return [_to_wire(record) for record in found if record is not None]

    def describe(self, caller: Identity, name: str, org: str | None = None) -> accounts.User:
        """One user.

        Raises:
            Forbidden: The caller manages no organisation.
            NotFound: There is no such user.
        """
        return _to_wire(self.find(self._get_managed(caller, org), name))

    def create(
        self,
        caller: Identity,
        request: accounts.NewUser,
        org: str | None = None,
        *,
        once: Once | None = None,
    ) -> accounts.User:
        """Make a user.

        Raises:
            Forbidden: The caller may not, or may not give that role.
            InvalidRequest: Name or role are none.
            AlreadyExists: The name is taken in this organisation.
        """
        organisation = self._get_managed(caller, org)
        common.check_name("name", request.name)
        role = _role(request.role)
        check_rank(caller, role)
        common.check_text("mail", request.mail, limit=254, allow_empty=True)
        self._check_few(organisation)
        if self._store.find(USER, organisation.name, request.name) is None:
            # A key that was made while its user was removed must not come to life with a namesake's
            # role.
            self._remove_keys(organisation, request.name)
        record = self._store.create(
            USER,
            org=organisation.name,
            name=request.name,
            owner=organisation.name,
            spec=UserSpec(role, request.mail),
            status=StandingStatus(),
            now=self._clock(),
            once=once,
        )
        return _to_wire(record)

    def _check_few(self, organisation: Organisation) -> None:
        """Refuse one more user than an organisation may have.

        Raises:
            QuotaExceeded: There are as many.
        """
        if (
            self._most
            and self._store.count(USER, org=organisation.name, most=self._most) >= self._most
        ):
            raise QuotaExceeded(
                f"{organisation.name} has {self._most} users; one more is refused",
                field="name",
                allowed=f"at most {self._most} users (the operator's setting keys.users_per_org)",
                hint="remove users that are not needed any more",
            )

    def change(
        self,
        caller: Identity,
        name: str,
        change: accounts.UserChange,
        org: str | None = None,
        *,
        once: Once | None = None,
    ) -> accounts.User:
        """Give a user another role, or enable or disable it. Its keys work or fail with it,
        everywhere within seconds.

        Raises:
            Forbidden: The caller may not, or the user is or would be an admin and the caller is
                none.
            NotFound: There is no such user.
            Conflict: Nobody would be left to manage.
        """
        organisation = self._get_managed(caller, org)
        record = self.find(organisation, name)
        check_rank(caller, record.spec.role)
        role = record.spec.role if change.role is None else _role(change.role)
        check_rank(caller, role)
        if change.mail is not None:
            common.check_text("mail", change.mail, limit=254, allow_empty=True)

        def changed(spec: UserSpec) -> UserSpec:
            return replace(
                spec,
                role=spec.role if change.role is None else role,
                enabled=spec.enabled if change.enabled is None else change.enabled,
                mail=spec.mail if change.mail is None else change.mail,
            )

        takes = change.enabled is False or role is not record.spec.role
        with self._rights.taking() if takes else contextlib.nullcontext() as fence:
            if takes:
                self.check_not_last(caller, record, role if change.enabled is not False else None)
            record = self._store.change_spec(
                USER, record.key.uid, changed, now=self._clock(), once=once, fence=fence
            )
        self._identities.clear()
        return _to_wire(record)

    def delete(
        self, caller: Identity, name: str, org: str | None = None, *, once: Once | None = None
    ) -> accounts.User:
        """Remove a user and its keys. What it made belongs to the organisation and stays.

        Marked first and removed last, so that a crash in between leaves nothing that works; asking
        again ends it.

        Raises:
            Forbidden: The caller may not.
            NotFound: There is no such user.
            Conflict: Nobody would be left to manage.
        """
        organisation = self._get_managed(caller, org)
        record = self.find(organisation, name)
        check_rank(caller, record.spec.role)
        with self._rights.taking() as fence:
            self.check_not_last(caller, record, None)
            record = self._store.request_delete(
                USER, record.key.uid, now=self._clock(), once=once, fence=fence
            )
        self._remove_keys(organisation, record.key.name)
        self._store.delete(USER, record.key.uid, fence=None)
        self._identities.clear()
        return _to_wire(record)

    def _remove_keys(self, organisation: Organisation, user: str) -> None:
        remove_tokens(self._store, organisation.name, user)
        for line in everything(self._store, ACCESS_KEY, SYSTEM):
            if line.owner == organisation.name:
                key = self._store.get(ACCESS_KEY, line.key.uid)
                if key is not None and key.spec.user == user:
                    self._store.delete(ACCESS_KEY, line.key.uid, fence=None)

    def find(self, organisation: Organisation, name: str) -> UserRecord:
        """The user of that name.

        Raises:
            NotFound: There is none.
        """
        record = self._store.find(USER, organisation.name, name) if len(name) <= 253 else None
        if record is None:
            raise NotFound(f"there is no user {name[:63]}", field="user", value=name[:63])
        return record

    def check_not_last(
        self, caller: Identity, user: UserRecord, role: Role | None, *, key: str | None = None
    ) -> None:
        """Refuse to take the last key to the platform, or the caller's own last one to the
        organisation.

        Args:
            caller: Who asks.
            user: Whose rights, or whose key, end.
            role: What the user is afterwards; ``None`` for nothing.
            key: The one key that ends, if it is not all of the user's.

        Raises:
            Conflict: Nobody would be left.
        """
        org, name, before = user.key.org, user.key.name, user.spec.role

        def is_left(one: Identity, operation: Operation) -> bool:
            goes = (one.org, one.user) == (org, name) and key in (None, one.access_key)
            return permits(one.role, operation) and not goes

        def check(operation: Operation, what: str, among: Callable[[Identity], bool]) -> None:
            if not permits(before, operation) or (role is not None and permits(role, operation)):
                return
            if not any(
                among(one) and is_left(one, operation) for one in self._identities.everybody()
            ):
                raise Conflict(
                    f"{name} is the last one who can {operation.value} {what}",
                    field="user",
                    value=name,
                    hint="give somebody else the role and a key first",
                )

        check(Operation.MANAGE_PLATFORM, "on this platform", lambda _: True)
        if (org, name) == (caller.org, caller.user):
            check(Operation.MANAGE_ORGANISATION, f"in {org}", lambda one: one.org == org)

    def _get_managed(self, caller: Identity, org: str | None) -> Organisation:
        permit(caller, Operation.MANAGE_ORGANISATION)
        return self._identities.named(caller, org)


def check_rank(caller: Identity, role: Role) -> None:
    """Nobody but an admin makes or touches an admin: an owner could become one through that key.

    Raises:
        Forbidden: The role is an admin's and the caller is none.
    """
    if role is Role.ADMIN and not caller.admin:
        raise Forbidden(
            "only an admin manages admins",
            field="role",
            value=role.value,
            allowed="owner, member, viewer",
        )


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise common.refuse("role", text, "one of " + ", ".join(Role)) from None


def _to_wire(record: UserRecord) -> accounts.User:
    spec = record.spec
    return accounts.User(
        name=record.key.name,
        org=record.key.org,
        role=spec.role.value,
        enabled=usable(record),
        mail=spec.mail,
        created_at=record.created_at,
    )

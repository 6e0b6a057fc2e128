"""Access tokens: made, listed and revoked by their users, and by owners for the organisation.
Blocking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from cloud_ml.auth import bearer
from cloud_ml.domain.access_tokens import ACCESS_TOKEN, AccessTokenSpec, user_tag
from cloud_ml.domain.records import Record
from cloud_ml.domain.scopes import Scope, enough_scopes, is_covered, known_scopes, parse_scopes
from cloud_ml.domain.tenancy import ACCESS_KEY, SYSTEM, Operation, StandingStatus, permits
from cloud_ml.errors import Conflict, Forbidden, NotFound, Unauthenticated
from cloud_ml.models import common
from cloud_ml.models.admin import access_tokens as wire
from cloud_ml.settings import KeySettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.repeated_requests import limit_of_new

TokenRecord = Record[AccessTokenSpec, StandingStatus]

_KEPT_AFTER_END = timedelta(days=7)
"""How long a token that has ended is listed, so that its user can see why a program stopped."""
_LONGEST_NOTE = 200
_CACHE_LIMIT = 10_000


class AccessTokens:
    """Creates, lists, revokes and believes tokens.

    A token may never do more than the key that made it, nor work longer than this key does. What
    was looked up is kept for ``keys.staleness_s``, as keys are; changes made on this server count
    at once.
    """

    def __init__(
        self, store: StateStore, identities: Identities, clock: Clock, settings: KeySettings
    ) -> None:
        self._store = store
        self._identities = identities
        self._clock = clock
        self._settings = settings
        self._found: dict[str, tuple[datetime, TokenRecord]] = {}
        self._changes = 0

    # --- belief ---

    def cached(self, sent: bearer.BearerToken) -> Identity | None:
        """The holder of a token that was looked up a moment ago; never blocks.

        Raises:
            Unauthenticated: The token does not work any more.
        """
        entry = self._found.get(sent.id)
        if entry is None or entry[0] <= self._clock():
            return None
        holder = self._identities.cached(entry[1].spec.access_key)
        return None if holder is None else self._believe(sent, entry[1], holder)

    def find(self, sent: bearer.BearerToken) -> Identity:
        """The holder of a token, with what the token may do.

        Raises:
            Unauthenticated: The token is unknown, has expired or was revoked, or its key does not
                work any more.
        """
        if (known := self.cached(sent)) is not None:
            return known
        changes = self._changes
        record = self._store.find(ACCESS_TOKEN, SYSTEM, sent.id)
        if record is None:
            bearer.same_digest("0" * 64, sent.digest)
            raise bearer.unknown_token()
        believed = self._believe(sent, record, self._look_up_holder(record))
        self._keep(record, changes)
        return believed

    def cached_holder(self, token_id: str) -> Identity | None:
        """The holder of a token that was believed before, if it still works and was looked up a
        moment ago; never blocks.
        """
        entry = self._found.get(token_id)
        if entry is None or entry[0] <= self._clock() or not self._is_live(entry[1].spec):
            return None
        return self._identities.cached(entry[1].spec.access_key)

    def holder(self, token_id: str) -> Identity | None:
        """The holder of a token that was believed before; ``None`` once it does not work any more,
        because it has expired, was revoked, or its key does not work.
        """
        if (known := self.cached_holder(token_id)) is not None:
            return known
        changes = self._changes
        record = self._store.find(ACCESS_TOKEN, SYSTEM, token_id)
        if record is None or not self._is_live(record.spec):
            return None
        if (holder := self._look_up_holder(record)) is not None:
            self._keep(record, changes)
        return holder

    def _is_live(self, spec: AccessTokenSpec) -> bool:
        return _end_of(spec) > self._clock()

    def _look_up_holder(self, record: TokenRecord) -> Identity | None:
        """Who has the key that made a token; ``None`` if this key does not work any more."""
        key = self._store.find(ACCESS_KEY, SYSTEM, record.spec.access_key)
        if key is None or key.key.uid != record.spec.key_uid:
            return None
        return self._identities.find(record.spec.access_key)

    def _keep(self, record: TokenRecord, changes: int) -> None:
        if len(self._found) >= _CACHE_LIMIT:
            self._found.clear()
        if changes == self._changes:  # else it was revoked while it was read
            until = self._clock() + timedelta(seconds=self._settings.staleness_s)
            self._found[record.key.name] = (until, record)

    def _believe(
        self, sent: bearer.BearerToken, record: TokenRecord, holder: Identity | None
    ) -> Identity:
        """The holder as the token's caller. What is said of a token is said to who has its whole
        text only.
        """
        spec = record.spec
        if not bearer.same_digest(spec.digest, sent.digest):
            raise bearer.unknown_token()
        if spec.revoked_at is not None:
            raise _token_error(f"Token {sent.id} was revoked at {_moment(spec.revoked_at)}.")
        if spec.expires_at is None or spec.expires_at <= self._clock():
            raise _token_error(f"Token {sent.id} expired at {_moment(spec.expires_at)}.")
        if holder is None:
            raise _token_error(f"The access key of token {sent.id} no longer works.")
        return replace(
            holder,
            token=sent.id,
            scopes=known_scopes(spec.scopes),
            token_expires_at=spec.expires_at,
        )

    def clear(self) -> None:
        """Forget what was looked up, and what is being looked up at this moment."""
        self._changes += 1
        self._found.clear()

    # --- management ---

    def create(
        self,
        caller: Identity,
        request: wire.NewAccessToken,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> wire.CreatedAccessToken:
        """Make a token of the caller's key. A token makes no token that may do more, or lasts
        longer, than itself.

        With an ``idempotency_key`` that made a token before, this token gets a new text: the first
        one is stored nowhere, and its answer was lost. The first text no longer works.

        Raises:
            Forbidden: The caller may not, or the token would be stronger than the one that makes
                it.
            Conflict: The user has as many tokens as a user may have.
                Or the idempotency key made another token.
            InvalidRequest: A scope or the lifetime is wrong.
        """
        permit(caller, Operation.MANAGE_OWN_KEYS)
        scopes = parse_scopes(request.scopes)
        common.check_text("note", request.note, limit=_LONGEST_NOTE, allow_empty=True)
        common.check_count(
            "expires_in_s",
            request.expires_in_s,
            least=1,
            most=self._settings.token_lifetime_limit_s,
        )
        now = self._clock()
        expires_at = now + timedelta(seconds=request.expires_in_s)
        _check_not_stronger(caller, scopes, expires_at)
        made_with = idempotency_key and f"{caller.access_key}:{caller.token}:{idempotency_key}"
        with limit_of_new(self._store, ACCESS_TOKEN, SYSTEM, made_with):
            self._make_room(caller, now)
        key = self._store.find(ACCESS_KEY, SYSTEM, caller.access_key)
        if key is None:  # revoked within the moment
            raise Unauthenticated("The access key of this request no longer works.")
        token, text = bearer.new_token()
        spec = AccessTokenSpec(
            org=caller.org,
            user=caller.user,
            access_key=caller.access_key,
            key_uid=key.key.uid,
            digest=token.digest,
            scopes=tuple(map(str, scopes)),
            expires_at=expires_at,
            parent=caller.token,
            note=request.note,
        )
        record = self._store.create(
            ACCESS_TOKEN,
            org=SYSTEM,
            name=token.id,
            owner=caller.org,
            spec=spec,
            status=StandingStatus(),
            now=now,
            title=caller.user,
            once=once,
            idempotency_key=made_with,
        )
        if record.key.name != token.id:
            record, text = self._with_new_text(record, spec, now)
        return wire.CreatedAccessToken(info=self._to_wire(record), token=text)

    def _with_new_text(
        self, record: TokenRecord, requested: AccessTokenSpec, now: datetime
    ) -> tuple[TokenRecord, str]:
        """A token that an earlier try of the same request made, with a text in place of the lost
        one.

        Raises:
            Conflict: It was a request for another token, or the token has been revoked since.
        """
        found = record.spec
        if (found.scopes, found.note, found.revoked_at) != (requested.scopes, requested.note, None):
            raise Conflict(
                f"this idempotency key made token {record.key.name}, which is another one or "
                "is revoked",
                field="Idempotency-Key",
                allowed="a key of its own for each token",
            )
        token, text = bearer.new_token(record.key.name)

        def changed(spec: AccessTokenSpec) -> AccessTokenSpec:
            return replace(spec, digest=token.digest)

        record = self._store.change_spec(ACCESS_TOKEN, record.key.uid, changed, now=now)
        self.clear()
        return record, text

    def list_tokens(
        self, caller: Identity, org: str | None = None, user: str | None = None
    ) -> list[wire.AccessToken]:
        """Tokens, oldest first: those of the organisation for who manages it, else the caller's
        own.

        Raises:
            NotFound: There is no such organisation.
        """
        organisation = self._identities.named(caller, org)
        manages = caller.admin or permits(caller.role, Operation.MANAGE_ORGANISATION)
        if not manages and user not in (None, caller.user):
            return []
        owner = user if manages else caller.user
        tag = None if owner is None else user_tag(organisation.name, owner)
        return [self._to_wire(record) for record in self._of(organisation.name, tag)]

    def describe(self, caller: Identity, token: str) -> wire.AccessToken:
        """One token.

        Raises:
            NotFound: There is none that the caller may see.
        """
        return self._to_wire(self._visible(caller, token))

    def revoke(self, caller: Identity, token: str, *, once: Once | None = None) -> wire.AccessToken:
        """End a token and the tokens that it made. It stays in the list until it would have
        expired.

        Raises:
            NotFound: There is none that the caller may see.
            Forbidden: The caller may only look.
        """
        permit(caller, Operation.MANAGE_OWN_KEYS)
        record = self._visible(caller, token)
        now = self._clock()

        def revoked(spec: AccessTokenSpec) -> AccessTokenSpec:
            return replace(spec, revoked_at=spec.revoked_at or now)

        record = self._store.change_spec(ACCESS_TOKEN, record.key.uid, revoked, now=now, once=once)
        for made in self._made_by(record):
            self._store.change_spec(ACCESS_TOKEN, made.key.uid, revoked, now=now)
        self.clear()
        return self._to_wire(record)

    def _made_by(self, record: TokenRecord) -> Iterator[TokenRecord]:
        for made in self._of(record.spec.org, f"parent={record.key.name}"):
            yield made
            yield from self._made_by(made)

    def _of(self, org: str, tag: str | None) -> list[TokenRecord]:
        match = Match(owner=org, tags=() if tag is None else (tag,))
        after, found = None, []
        while True:
            page = self._store.list(ACCESS_TOKEN, org=SYSTEM, match=match, after=after, limit=1000)
            found += [self._store.get(ACCESS_TOKEN, line.key.uid) for line in page.items]
            if (after := page.next) is None:
                return [record for record in reversed(found) if record is not None]

    def _visible(self, caller: Identity, token: str) -> TokenRecord:
        record = self._store.find(ACCESS_TOKEN, SYSTEM, token) if len(token) <= 64 else None
        if record is not None:
            own = (record.spec.org, record.spec.user) == (caller.org, caller.user)
            manages = record.spec.org == caller.org and permits(
                caller.role, Operation.MANAGE_ORGANISATION
            )
            if own or manages or caller.admin:
                return record
        name = bearer.without_secrets(token)[:64]
        raise NotFound(f"there is no token {name}", field="token", value=name)

    def _make_room(self, caller: Identity, now: datetime) -> None:
        """Drop the caller's tokens that ended some days ago, and the oldest of those that ended
        where they are many.

        Raises:
            Conflict: The user has as many tokens as a user may have.
        """
        most = self._settings.tokens_per_user
        records = self._of(caller.org, user_tag(caller.org, caller.user))
        ended = [record for record in records if _end_of(record.spec) <= now]
        if len(records) - len(ended) >= most:
            raise Conflict(
                f"{caller.user} has {len(records) - len(ended)} tokens that have not ended",
                field="user",
                value=caller.user,
                allowed=f"at most {most} tokens (the operator's setting keys.tokens_per_user)",
                hint="Revoke one: cloudml token revoke ID",
            )
        kept = [record for record in ended if _end_of(record.spec) + _KEPT_AFTER_END > now][-most:]
        for record in ended:
            if record not in kept:
                self._store.delete(ACCESS_TOKEN, record.key.uid, fence=None)

    def _to_wire(self, record: TokenRecord) -> wire.AccessToken:
        spec = record.spec
        assert spec.expires_at is not None
        return wire.AccessToken(
            id=record.key.name,
            org=spec.org,
            user=spec.user,
            access_key=spec.access_key,
            scopes=list(spec.scopes),
            state=self._state(spec),
            note=spec.note,
            created_at=record.created_at,
            expires_at=spec.expires_at,
            revoked_at=spec.revoked_at,
        )

    def _state(self, spec: AccessTokenSpec) -> str:
        if spec.revoked_at is not None:
            return "revoked"
        if spec.expires_at is None or spec.expires_at <= self._clock():
            return "expired"
        key = self._store.find(ACCESS_KEY, SYSTEM, spec.access_key)
        usable = key is not None and key.key.uid == spec.key_uid and self._identities.works(key)
        return "usable" if usable else "not usable"


def remove_tokens(store: StateStore, org: str, user: str) -> None:
    """Remove the tokens of a user who is being removed."""
    match = Match(owner=org, tags=(user_tag(org, user),))
    while items := store.list(ACCESS_TOKEN, org=SYSTEM, match=match, limit=1000).items:
        for line in items:
            store.delete(ACCESS_TOKEN, line.key.uid, fence=None)


class MissingScope(Forbidden):
    """A token lacks a scope; ``allowed`` names it."""


def permit_scope(caller: Identity, needed: Scope | None) -> None:
    """Let pass a caller without a token, and one whose token covers what is needed.

    Raises:
        MissingScope: The token does not.
    """
    if caller.scopes is None or needed is None or is_covered(caller.scopes, needed):
        return
    held = ", ".join(map(str, caller.scopes))
    raise MissingScope(
        f"This needs a token with the scope {needed}. Token {caller.token} has: {held}.",
        field="scope",
        value=held,
        allowed=str(needed),
        hint=_hint_of_scope(caller.scopes, needed),
    )


def _hint_of_scope(held: tuple[Scope, ...], needed: Scope) -> str:
    hint = bearer.how_to_replace(str(enough_scopes(held, needed)))
    may_predict = any(one.resource == "models" and one.action == "predict" for one in held)
    if needed == Scope("models", "read") and may_predict:
        # The server tells the address of a service; the call itself goes to the gateway.
        return f"{hint} Without models:read: cloudml models predict NAME --server HOST:PORT"
    return hint


def _check_not_stronger(caller: Identity, scopes: tuple[Scope, ...], expires_at: datetime) -> None:
    if caller.scopes is None:
        return
    for scope in scopes:
        if not is_covered(caller.scopes, scope):
            raise Forbidden(
                f"Token {caller.token} cannot create a token with the scope {scope}, which it "
                "does not have.",
                field="scopes",
                value=str(scope),
                allowed=", ".join(map(str, caller.scopes)),
            )
    if caller.token_expires_at is not None and expires_at > caller.token_expires_at:
        raise Forbidden(
            f"Token {caller.token} cannot create a token that lasts longer than itself.",
            field="expires_in_s",
            allowed=f"until {_moment(caller.token_expires_at)}",
        )


def _end_of(spec: AccessTokenSpec) -> datetime:
    assert spec.expires_at is not None
    return min(spec.revoked_at or spec.expires_at, spec.expires_at)


def _token_error(message: str) -> Unauthenticated:
    return Unauthenticated(
        message,
        field="Authorization",
        allowed="a token that works",
        hint=bearer.how_to_replace(),
    )


def _moment(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"

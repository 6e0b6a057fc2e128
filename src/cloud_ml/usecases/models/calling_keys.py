"""The keys whose tokens open model services, as the gateway is to know them. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from cloud_ml.auth.tokens import derived_key
from cloud_ml.domain.access_tokens import ACCESS_TOKEN, CALLS_MODELS, AccessTokenSpec, model_scopes
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.services.routes import CallingKey, access_token_name
from cloud_ml.domain.tenancy import (
    ACCESS_KEY,
    ORGANISATION,
    SYSTEM,
    USER,
    AccessKeySpec,
    StandingStatus,
)
from cloud_ml.errors import TryAgain
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import everything, usable
from cloud_ml.usecases.clock import Clock

S = TypeVar("S")
logger = logging.getLogger(__name__)


class CallingKeys:
    """Reads all keys that work; what is derived from a secret is kept, for it costs more than
    the reading.
    """

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._derived: dict[str, tuple[str, str]] = {}

    def __call__(self) -> dict[str, CallingKey]:
        """Keys by access key. One that has an end is among them: whoever checks tokens looks at
        the time.
        """
        now = self._clock()
        holders: dict[tuple[str, str], bool] = {}
        found: dict[str, CallingKey] = {}
        uids: dict[str, str] = {}
        for line in everything(self._store, ACCESS_KEY, SYSTEM):
            key = self._read(ACCESS_KEY, line.key.uid)
            if (
                key is None
                or not usable(key)
                or (key.spec.expires_at is not None and key.spec.expires_at <= now)
            ):
                continue
            holder = (key.spec.org, key.spec.user)
            if holder not in holders:
                holders[holder] = self._stands(*holder)
            if holders[holder]:
                ends = (
                    int(key.spec.expires_at.timestamp()) if key.spec.expires_at is not None else 0
                )
                uids[key.key.name] = key.key.uid
                found[key.key.name] = CallingKey(key.spec.org, self._key(key), ends)
        self._derived = {name: each for name, each in self._derived.items() if name in found}
        return found | self._tokens(found, uids)

    def _tokens(
        self, keys: Mapping[str, CallingKey], uids: Mapping[str, str]
    ) -> dict[str, CallingKey]:
        """Access tokens that concern model services, of keys that work. ``uids`` are those of
        these keys.
        """
        found: dict[str, CallingKey] = {}
        now, after = self._clock(), None
        while True:
            page = self._store.list(
                ACCESS_TOKEN, org=SYSTEM, match=Match(tags=(CALLS_MODELS,)), after=after, limit=1000
            )
            for line in page.items:
                token = self._read(ACCESS_TOKEN, line.key.uid)
                # If a key is removed and created again under the same name, the tokens of the old
                # key stay invalid.
                if token is None or uids.get(token.spec.access_key) != token.spec.key_uid:
                    continue
                calling = _calling(token.spec, keys[token.spec.access_key], now)
                if calling is not None:
                    found[access_token_name(token.key.name)] = calling
            if (after := page.next) is None:
                return found

    def _read(self, kind: Kind[S, StandingStatus], uid: str) -> Record[S, StandingStatus] | None:
        """The key; none where it cannot be read, which must not keep the keys of others from
        working.
        """
        try:
            return self._store.get(kind, uid)
        except TryAgain:
            raise
        except Exception:
            logger.exception("a key cannot be read", extra={"uid": uid})
            return None

    def _stands(self, org: str, user: str) -> bool:
        holder = self._store.find(USER, org, user)
        organisation = self._store.find(ORGANISATION, SYSTEM, org)
        return (
            holder is not None
            and organisation is not None
            and usable(holder)
            and usable(organisation)
        )

    def _key(self, key: Record[AccessKeySpec, StandingStatus]) -> str:
        name, secret = key.key.name, key.spec.secret
        known = self._derived.get(name)
        if known is None or known[0] != secret:
            known = self._derived[name] = (secret, derived_key(secret).hex())
        return known[1]


def _calling(spec: AccessTokenSpec, key: CallingKey, now: datetime) -> CallingKey | None:
    """A token as the gateway is to know it; ``None`` if it has ended."""
    if spec.revoked_at is not None or spec.expires_at is None or spec.expires_at <= now:
        return None
    ends = int(spec.expires_at.timestamp())
    return CallingKey(
        spec.org, spec.digest, min(ends, key.expires) if key.expires else ends, model_scopes(spec)
    )

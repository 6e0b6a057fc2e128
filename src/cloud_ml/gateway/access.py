"""Who may call: tokens against the keys that the server told, remembered until they end."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping

from cloud_ml.auth import bearer as access_tokens
from cloud_ml.auth.tokens import Token
from cloud_ml.domain.scopes import Scope, enough_scopes, is_covered, known_scopes
from cloud_ml.domain.services.routes import CallingKey, access_token_name
from cloud_ml.gateway import answers
from cloud_ml.gateway.answers import Refusal

_REMEMBERED = 10_000
PREDICT, METADATA, WRITE = "predict", "metadata", "write"
"""What a call does: the actions of scopes of models."""


class Access:
    """Believes tokens or refuses them.

    Args:
        longest_s: How far ahead the end of a token may be that its caller has derived from a key.
        now: Tells the time, in seconds since 1970.
    """

    def __init__(self, longest_s: float, now: Callable[[], float] = time.time) -> None:
        self._longest_s = longest_s
        self._now = now
        self._keys: dict[str, tuple[str, bytes, int]] = {}
        self._scopes: dict[str, tuple[Scope, ...]] = {}
        self._believed: dict[str, tuple[str, float, str, tuple[Scope, ...]]] = {}

    def learn(self, keys: Mapping[str, CallingKey]) -> None:
        """These keys and access tokens work, and no others."""
        self._keys = {
            name: (each.org, bytes.fromhex(each.key), each.expires) for name, each in keys.items()
        }
        self._scopes = {
            name: known_scopes(each.scopes) for name, each in keys.items() if each.scopes
        }
        # A key may be disabled now, or a token may have other scopes.
        self._believed.clear()

    def refusal(self, token: str, org: str, service: str, action: str = PREDICT) -> Refusal | None:
        """Why a call with this token is refused at a service of an organisation; ``None`` if it
        is not.
        """
        if not token:
            return answers.MISSING
        now = self._now()
        known = self._believed.get(token)
        if known is None or known[1] <= now:
            known = self._believe(token, now)
            if known is None:
                return answers.WRONG
        if known[0] != org:
            return answers.FOREIGN
        if known[3]:
            return _missing_scope(known[3], Scope("models", action, service))
        return answers.NARROW if known[2] and known[2] != service else None

    def works(self, access_key: str, org: str) -> bool:
        """Whether an access key of an organisation works now."""
        found = self._keys.get(access_key)
        return found is not None and found[0] == org and (not found[2] or self._now() < found[2])

    def organisation_of(self, token: str) -> str | Refusal:
        """The organisation whose services a token opens, some of them at least; or why it opens
        none.
        """
        if not token:
            return answers.MISSING
        now = self._now()
        known = self._believed.get(token)
        if known is None or known[1] <= now:
            known = self._believe(token, now)
        return answers.WRONG if known is None else known[0]

    def _believe(self, text: str, now: float) -> tuple[str, float, str, tuple[Scope, ...]] | None:
        self._believed.pop(text, None)
        known = (
            self._access_token(text, now)
            if text.startswith("cloudml_")
            else self._call_token(text, now)
        )
        if known is not None:
            # Only tokens that opened are kept, so strangers cannot push them out.
            if len(self._believed) >= _REMEMBERED:
                self._believed.clear()
            self._believed[text] = known
        return known

    def _call_token(
        self, text: str, now: float
    ) -> tuple[str, float, str, tuple[Scope, ...]] | None:
        """A token that its caller derived from a key."""
        token = Token.read(text)
        found = self._keys.get(token.access_key) if token is not None else None
        if token is None or found is None or not now < token.expires <= now + self._longest_s:
            return None
        org, key, ends = found
        if (ends and ends <= now) or not token.made_with(key):
            return None
        until = min(token.expires, ends) if ends else token.expires
        return org, float(until), token.service, ()

    def _access_token(
        self, text: str, now: float
    ) -> tuple[str, float, str, tuple[Scope, ...]] | None:
        """A token that the server made. It is the server that bounds how long such a token
        works.
        """
        token = access_tokens.parse(text)
        if token is None:
            return None
        name = access_token_name(token.id)
        found, scopes = self._keys.get(name), self._scopes.get(name, ())
        if found is None or not scopes or not now < found[2]:
            return None
        if not hmac.compare_digest(found[1], bytes.fromhex(token.digest)):
            return None
        return found[0], float(found[2]), "", scopes


def _missing_scope(held: tuple[Scope, ...], needed: Scope) -> Refusal | None:
    if is_covered(held, needed):
        return None
    return Refusal(
        7,
        403,
        f"the token lacks the scope {needed}; it has {', '.join(map(str, held))}. Create one: "
        f"cloudml token create --scope {enough_scopes(held, needed)}",
    )


def bearer(value: str) -> str:
    """The token of an ``Authorization`` field; empty for any other scheme."""
    # RFC 9110, section 11.1: names of schemes are case-insensitive.
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""

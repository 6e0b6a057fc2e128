"""Who may call: tokens against the keys that the server told, remembered until they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cloud_ml.auth.tokens import Token
from cloud_ml.domain.services.routes import CallingKey
from cloud_ml.gateway import answers
from cloud_ml.gateway.answers import Refusal

_REMEMBERED = 10_000


class Access:
    """Believes tokens or refuses them.

    Args:
        longest_s: How far ahead the end of a token may be.
        now: Tells the time, in seconds since 1970.
    """

    def __init__(self, longest_s: float, now: Callable[[], float] = time.time) -> None:
        self._longest_s = longest_s
        self._now = now
        self._keys: dict[str, tuple[str, bytes, int]] = {}
        self._believed: dict[str, tuple[str, float, str]] = {}

    def learn(self, keys: Mapping[str, CallingKey]) -> None:
        """These keys work, and no others."""
        self._keys = {name: (each.org, bytes.fromhex(each.key), each.expires) for name, each in keys.items()}
        self._believed.clear()

    def refusal(self, token: str, org: str, service: str) -> Refusal | None:
        """Why a call with this token is refused at a service of an organisation; ``None`` if it is not."""
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
        return answers.NARROW if known[2] and known[2] != service else None

    def _believe(self, text: str, now: float) -> tuple[str, float, str] | None:
        self._believed.pop(text, None)
        token = Token.read(text)
        found = self._keys.get(token.access_key) if token is not None else None
        if token is None or found is None or not now < token.expires <= now + self._longest_s:
            return None
        org, key, ends = found
        if (ends and ends <= now) or not token.made_with(key):
            return None
        if len(self._believed) >= _REMEMBERED:
            self._believed.clear()
        until = min(token.expires, ends) if ends else token.expires
        known = self._believed[text] = (org, float(until), token.service)
        return known


def bearer(value: str) -> str:
    """The token of an ``Authorization`` field; empty for any other scheme."""
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""

"""What an access token may do: scopes such as ``jobs:read`` and ``models:predict:linear/v1``.
Pure.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from cloud_ml.errors import InvalidRequest

_ACTIONS: dict[str, tuple[str, ...]] = {
    "jobs": ("read", "write"),
    "models": ("read", "write", "predict", "metadata"),
    "runs": ("read", "write"),
    "storage": ("read", "write"),
    "secrets": ("read", "write"),
    "runtimes": ("read", "write"),
    "quota": ("read", "write"),
    "orgs": ("read", "write"),
    "users": ("read", "write"),
    "keys": ("read", "write"),
    "tokens": ("read", "write"),
    "audit": ("read",),
}
ACTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(_ACTIONS)
"""Every resource and what a token may do with it."""

CALLS = frozenset({"predict", "metadata"})
"""Actions on a served model. Only these may name one service."""

_INCLUDED: Mapping[str, frozenset[str]] = {
    "write": frozenset({"write", "read", "metadata"}),
    "read": frozenset({"read", "metadata"}),
    "predict": frozenset({"predict", "metadata"}),
    "metadata": frozenset({"metadata"}),
}
_SERVICE = re.compile(r"[a-z0-9-]{1,63}(/[A-Za-z0-9._-]{1,63})?")
MOST_SCOPES = 50
"""Scopes of one token."""
_MOST_KEPT = 5
"""Scopes of an old token that a hint repeats."""


def declare_resource(plural: str) -> None:
    """Let tokens read and change resources of a kind that is known by its description."""
    _ACTIONS.setdefault(plural, ("read", "write"))


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """An action on a resource. ``name`` is the one service it is about, ``model`` or
    ``model/version``; else empty.
    """

    resource: str
    action: str
    name: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.resource, self.action, self.name) if part)

    def covers(self, needed: Scope) -> bool:
        """Whether a holder of this scope may do what needs that one."""
        if self.resource != needed.resource or needed.action not in _INCLUDED[self.action]:
            return False
        return self.name in ("", needed.name) or self.name == needed.name.partition("/")[0]


def parse_scope(text: str) -> Scope:
    """The scope that a text names.

    Raises:
        InvalidRequest: It names none. Says what is allowed.
    """
    resource, _, rest = text.partition(":")
    action, colon, name = rest.partition(":")
    if resource not in ACTIONS:
        raise _invalid_scope(
            text, ", ".join(ACTIONS) + ", then ':' and an action", closest_word(resource, ACTIONS)
        )
    if action not in ACTIONS[resource]:
        words = [f"{resource}:{each}" for each in ACTIONS[resource]]
        raise _invalid_scope(text, " or ".join(words), closest_word(f"{resource}:{action}", words))
    if colon and action not in CALLS:
        raise _invalid_scope(
            text, f"{resource}:{action}, without a name; only calls of models name a service"
        )
    if colon and not _SERVICE.fullmatch(name):
        raise _invalid_scope(text, f"{resource}:{action}:NAME or {resource}:{action}:NAME/VERSION")
    return Scope(resource, action, name)


def parse_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """The scopes that texts name, sorted, each once.

    Raises:
        InvalidRequest: A text names none, or there are none or too many.
    """
    found = tuple(sorted({parse_scope(text) for text in texts}))
    if not 1 <= len(found) <= MOST_SCOPES:
        raise InvalidRequest(
            f"scopes has {len(found)} entries; allowed is 1 to {MOST_SCOPES}",
            field="scopes",
            value=len(found),
            allowed=f"1 to {MOST_SCOPES} scopes, such as jobs:read",
        )
    return found


def known_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Those scopes of a stored token that this version knows: a newer one may have stored
    others.
    """
    found = []
    for text in texts:
        with contextlib.suppress(InvalidRequest):
            found.append(parse_scope(text))
    return tuple(found)


def is_covered(held: Collection[Scope], needed: Scope) -> bool:
    """Whether one of the scopes covers what is needed."""
    return any(scope.covers(needed) for scope in held)


def enough_scopes(held: Collection[Scope], needed: Scope) -> str:
    """What a new token needs that may do this, too, as ``--scope`` takes it.

    What the old token may do with the same resource stays: a call of a model, for example, takes
    ``models:read`` for its address and ``models:predict`` for the call.
    """
    kept = [one for one in held if one.resource == needed.resource and not needed.covers(one)]
    return ",".join(map(str, (needed, *kept[:_MOST_KEPT])))


def closest_word(word: str, known: Iterable[str]) -> str:
    """A known word that looks like this one; empty if none does."""
    return next(iter(get_close_matches(word, list(known), n=1)), "")


def _invalid_scope(text: str, allowed: str, suggestion: str = "") -> InvalidRequest:
    return InvalidRequest(
        f"scopes has {text[:100]!r}; allowed is {allowed}",
        field="scopes",
        value=text[:100],
        allowed=allowed,
        hint=f"Did you mean {suggestion}?" if suggestion else None,
    )

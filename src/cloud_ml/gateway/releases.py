"""Which release of a service takes a call, what is counted of each, and how caller and gateway
speak of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from cloud_ml.domain.services.routes import CANDIDATE, STABLE, Answered, Route
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.replica import Replica
from cloud_ml.net.http2 import frames

HEADER = "cloudml-release"
"""In an answer the number of the release that gave it; in a request the one that is to:
``stable``, ``candidate`` or a number.
"""


class Split:
    """Deals calls out: of any hundred in a row exactly ``share`` go to the candidate, as evenly
    as can be.
    """

    def __init__(self) -> None:
        self._due = 0

    def turn(self, share: int) -> bool:
        """Whether the next call is the candidate's."""
        self._due += share
        if self._due < 100:
            return False
        self._due -= 100
        return True


class Sides:
    """The replicas of a service, by who is to answer."""

    def __init__(self, route: Route, replicas: Iterable[Replica]) -> None:
        self._all = tuple(replicas)
        self._candidate = route.candidate
        self.stable = tuple(each for each in self._all if not self._is_tried(each))
        self.tried = tuple(each for each in self._all if self._is_tried(each))

    def _is_tried(self, replica: Replica) -> bool:
        return bool(self._candidate) and replica.backend.release == self._candidate

    def replicas_named(self, word: str) -> Collection[Replica]:
        """Those that a caller asked for by name."""
        if word == STABLE:
            return self.stable
        if word == CANDIDATE:
            return self.tried
        return tuple(each for each in self._all if str(each.backend.release) == word)

    def refusal(self, word: str) -> Refusal | None:
        """Why a caller may not ask for these; ``None`` if it may. A candidate that does not
        answer is waited for.
        """
        if (
            word == STABLE
            or self.replicas_named(word)
            or (self._candidate and word in (CANDIDATE, str(self._candidate)))
        ):
            return None
        there = sorted({each.backend.release for each in self._all})
        names = [STABLE, *([CANDIDATE] if self._candidate else []), *map(str, there)]
        return Refusal(3, 400, f"{HEADER} is {word[:40]!r}; allowed: {', '.join(names)}")


class _Sum:
    """``Answered``, while it is counted."""

    __slots__ = ("errors", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = self.errors = 0
        self.seconds = 0.0

    def add(self, seconds: float, *, well: bool) -> None:
        self.requests += 1
        self.errors += not well
        self.seconds += seconds

    @property
    def answered(self) -> Answered:
        return Answered(self.requests, self.errors, self.seconds)


class Counts:
    """What was asked of each release that a route still names, and of each side in all."""

    def __init__(self) -> None:
        self._releases: dict[int, _Sum] = {}
        self._stable, self._tried = _Sum(), _Sum()

    def keep(self, route: Route) -> None:
        """Forget the others."""
        named = {each.release for each in route.backends} | {route.candidate}
        if (
            route.backends
        ):  # for want of any replica all stay: those that come are likely of the same
            self._releases = {
                release: each for release, each in self._releases.items() if release in named
            }

    def add(self, release: int, seconds: float, *, well: bool, tried: bool) -> None:
        """A call has ended."""
        found = self._releases.get(release)
        if found is None:
            found = self._releases[release] = _Sum()
        found.add(seconds, well=well)
        (self._tried if tried else self._stable).add(seconds, well=well)

    def figures(self) -> dict[str, Answered]:
        """By number."""
        return {str(release): each.answered for release, each in self._releases.items() if release}

    def sides(self) -> dict[str, Answered]:
        """By what the release was when it answered."""
        return {STABLE: self._stable.answered, CANDIDATE: self._tried.answered}


@lru_cache(256)
def grpc_mark(release: int) -> bytes:
    """The field that names the release, for a block of headers; empty where it is not known."""
    return frames.literal(HEADER, str(release)) if release else b""


@lru_cache(256)
def rest_mark(release: int) -> bytes:
    """The same as a line of a head."""
    return f"{HEADER}: {release}\r\n".encode() if release else b""

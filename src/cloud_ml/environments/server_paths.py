"""Paths of this machine in what the tools of environments say. No job sees them, and they tell
where the server keeps its data.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cloud_ml.environments.base import EnvironmentFailed

_PLATFORM = Path(__file__).parents[1]
_PART = rb"[^/\s'\"]+"
_END = rb"(?![\w.-])"


class ServerPaths:
    """Makes them relative: to the trainer's folder where code is built, to ``site-packages``, to
    the folder of all environments (``home``), and to the platform's own package.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    @functools.cached_property
    def _rules(self) -> Sequence[tuple[bytes, bytes]]:
        """Patterns, and what takes their place; made when there are words."""
        homes = b"|".join(re.escape(bytes(one)) for one in {self._home, self._home.resolve()})
        below = rb"(?:" + homes + rb")"
        tenant = rb"/tenants/" + _PART
        return [
            (below + tenant + rb"/trainers/" + _PART + rb"/out/src/(?=\S)", b""),
            (below + tenant + rb"/trainers/" + _PART + rb"/out/src" + _END, b"."),
            (
                below + rb"(?:" + tenant + rb")?/layers/" + _PART + rb"/site-packages" + _END,
                b"site-packages",
            ),
            (below + _END, b"environments"),
            (re.escape(bytes(_PLATFORM)) + _END, b"cloud_ml"),
        ]

    def relative(self, words: bytes) -> bytes:
        """The words without such paths."""
        for pattern, short in self._rules:
            words = re.sub(pattern, short, words)
        return words

    def logged(self, log: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Takes words for ``log``."""
        return lambda words: log(self.relative(words))

    @contextlib.contextmanager
    def in_failures(self) -> Iterator[None]:
        """Failures in the block tell no such path."""
        try:
            yield
        except EnvironmentFailed as failure:
            message = self.relative(failure.message.encode("utf-8", "surrogateescape"))
            failure.message = message.decode("utf-8", "surrogateescape")
            failure.args = (failure.message,)
            raise

"""What the use cases ask of the catalogue of frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Catalog(Protocol):
    """The frameworks that jobs may name."""

    def refusal(self, framework: str, version: str | None) -> str | None:
        """Why no runtime answers to ``framework`` and ``version`` (any, when ``None``); ``None``
        if one does.
        """

    def listing(self) -> Mapping[str, Sequence[str]]:
        """Framework → its versions, newest first."""

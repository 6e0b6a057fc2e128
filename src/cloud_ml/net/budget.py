"""How much memory the bodies of requests may take together."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED = 4_096
"""Bytes of a body that came at once from which on it is counted: smaller ones are bounded by the
number of calls.
"""
NO_ROOM = "too many requests are under way; send this one again later"


@dataclass(slots=True)
class Budget:
    """Bytes of the requests under way, over all connections and protocols, until each is answered
    or given up.

    ``parent`` counts them too: at the gateway an organisation has a budget, within that of all.
    """

    most: int = 1 << 30
    held: int = 0
    parent: Budget | None = None

    def add(self, size: int) -> None:
        """So many bytes came, or, below zero, went."""
        self.held += size
        if self.parent is not None:
            self.parent.add(size)

    @property
    def full(self) -> bool:
        """Whether nothing more may come."""
        return self.held > self.most or (self.parent is not None and self.parent.full)

"""One pass over a record: what it takes, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class ReconcileResult:
    """How a pass ended.

    Attributes:
        revision: The revision of the record that needs nothing more; 0 where the record is gone.
        again: When to look again even if nothing changes; ``None`` for no time.
    """

    revision: int = 0
    again: datetime | None = None


class Reconciler(Protocol):
    """Takes the steps that are due for one record."""

    async def reconcile(self, uid: str) -> ReconcileResult:
        """Take steps until there is nothing to commit.

        Raises:
            FenceLost: Another controller has taken over.
            TryAgain: A part does not answer at present.
        """

    def step_aside(self, uid: str) -> None:
        """A pass over the record has taken too long: others must not wait behind it in a queue."""

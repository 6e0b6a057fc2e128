"""One look at a record, a file for each kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Looked:
    """How a look ended: the revision that nothing more is to be done about, and when to look again, if at all."""

    revision: int = 0
    again: datetime | None = None

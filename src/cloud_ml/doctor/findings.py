"""What an examination says: one finding for each thing that was looked at."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """``PROBLEM`` keeps something from working, ``WARNING`` makes it less than it could be."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: where, what, how it is, in words, and what to do about it."""

    area: str
    name: str
    verdict: Verdict
    says: str
    remedy: str = ""


class Area:
    """Makes the findings of one area."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, name: str, message: str) -> Finding:
        """All is well."""
        return Finding(self.name, name, Verdict.OK, message)

    def warning(self, name: str, message: str, remedy: str = "") -> Finding:
        """It works, but not as well as it could."""
        return Finding(self.name, name, Verdict.WARNING, message, remedy)

    def problem(self, name: str, message: str, remedy: str = "") -> Finding:
        """It does not work."""
        return Finding(self.name, name, Verdict.PROBLEM, message, remedy)

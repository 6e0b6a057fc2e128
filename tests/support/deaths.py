"""The table of what happens when a part of a job dies, for the page and for the test of each row."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "faults" / "deaths.toml"


@dataclass(frozen=True)
class Row:
    """A row of the page: what follows in these jobs when one of ``who`` ends so, then.

    ``test`` is empty for those that are played.
    """

    jobs: tuple[str, ...]
    who: tuple[str, ...]
    causes: tuple[str, ...]
    moments: tuple[str, ...]
    follows: str
    free: bool = False
    test: str = ""


@dataclass(frozen=True)
class Death:
    """One combination of a row."""

    job: str
    who: str
    cause: str
    moment: str
    follows: str
    free: bool

    @property
    def name(self) -> str:
        """Such as ``several-chief-SIGKILL-training``."""
        return "-".join((self.job, self.who, self.cause, self.moment))


@cache
def words() -> Mapping[str, Mapping[str, str]]:
    """What the page says for each word of the table: ``words()["causes"]["exit"]``."""
    return {name: part for name, part in _document().items() if isinstance(part, dict)}


def played_by() -> str:
    """The test of every row that names no other."""
    name: str = _document()["played_by"]
    return name


@cache
def rows() -> Sequence[Row]:
    """All rows, in the order of the page."""
    return [
        Row(**{name: tuple(v) if isinstance(v, list) else v for name, v in row.items()})
        for row in _document()["row"]
    ]


def played(test: str = "") -> list[Death]:
    """Every combination of the rows of a test; by default of those that name none.

    Raises:
        ValueError: Two rows say something about the same.
    """
    found: dict[str, Death] = {}
    for row in rows():
        if row.test != test:
            continue
        for job, who, cause, moment in itertools.product(
            row.jobs, row.who, row.causes, row.moments
        ):
            death = Death(job, who, cause, moment, row.follows, row.free)
            if found.setdefault(death.name, death) is not death:
                raise ValueError(f"two rows are about {death.name}")
    return list(found.values())


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text("utf-8"))

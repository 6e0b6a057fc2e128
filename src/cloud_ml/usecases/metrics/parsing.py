"""Who parses the files of jobs: a process without rights, which answers with points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.summary_tags import SummaryTag


class UnreadableFile(Exception):
    """The parser dies of this file, or does not end; the message says how."""


class NoParser(Exception):
    """There is no parser now, and no file is to blame; the message says why."""


@dataclass(frozen=True)
class EventSession:
    """A part of an event file that one program has written, and the step from which on it takes
    away what those before it have written.
    """

    number: int = 0
    purge: int | None = None


@dataclass(frozen=True)
class EventPiece:
    """Points of a piece of an event file. ``restart`` of each is the number of its session.

    ``session`` goes on behind the piece. ``broken`` says why nothing follows. ``tags`` count the
    summaries of the piece that are no scalars.
    """

    values: Sequence[Value]
    taken: int
    session: EventSession
    broken: str = ""
    tags: Sequence[SummaryTag] = ()


@dataclass(frozen=True)
class LogPiece:
    """Points of a piece of a log, and what it told of steps."""

    values: Sequence[Value]
    taken: int
    steps: Mapping[str, int]


@dataclass(frozen=True)
class PatternProblem:
    """A pattern that is refused, and why."""

    pattern: str
    reason: str


class PointParser(Protocol):
    """Parses what jobs have written. Blocking; one request at a time.

    Each method raises ``NoParser`` if there is none, and ``UnreadableFile`` if it dies of
    what it is given.
    """

    def read_events(self, descriptor: int, offset: int, session: EventSession) -> EventPiece:
        """The points of a piece of an event file from ``offset`` on."""

    def read_log(
        self,
        descriptor: int,
        offset: int,
        left: int,
        *,
        patterns: Sequence[str],
        steps: Mapping[str, int],
        at: int,
        final: bool,
    ) -> LogPiece:
        """The points of a piece of a log, of which ``left`` bytes follow ``offset``.

        They get the time ``at``. ``steps`` is what the piece before has told of steps. ``final``:
        nothing is written behind it any more.
        """

    def check_patterns(
        self, patterns: Sequence[str], *, search: bool = False
    ) -> PatternProblem | None:
        """The first pattern that is none; ``None`` if all are fine. Those of metrics need a group for
        a value, those for a ``search`` need none.
        """

"""Pages of the records that fit several conditions at once, in steps that are bounded.

One condition leads: the numbers of the records that fit it are read along its index, newest first,
and the few records they name are held against the others. If several could lead, the one with
fewest records does; to find out, none is counted to its end. When nothing rare leads and hardly
anything fits, a page ends after ``LOOKED`` records, short as it is, and names where to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, bindparam, select

from cloud_ml.domain.records import Kind, Summary
from cloud_ml.state.base import Page
from cloud_ml.state.matching import Match
from cloud_ml.state.sql import times
from cloud_ml.state.sql.listing import NARROW, summary_of
from cloud_ml.state.sql.tables import record_tags, records

RARE = 1000
LOOKED = 5000
_STEP = 500
_ROWS = select(*NARROW).where(records.c.number.in_(bindparam("numbers", expanding=True)))
_LISTED = select(records.c.number).where(
    records.c.number.in_(bindparam("numbers", expanding=True)),
    records.c.index_value.in_(bindparam("values", expanding=True)),
)
_TAGGED = select(record_tags.c.number, record_tags.c.tag).where(
    record_tags.c.number.in_(bindparam("numbers", expanding=True)),
    record_tags.c.tag.in_(bindparam("tags", expanding=True)),
)


class _Between(NamedTuple):
    above: int
    below: int


@dataclass(frozen=True)
class _Lead:
    """A condition with an index. ``ordered``: the index holds the records of each stretch by
    their number.
    """

    table: Table
    stretches: Sequence[Sequence[ColumnElement[bool]]]
    ordered: bool = True

    def few(self, connection: Connection) -> list[int] | None:
        """All numbers, newest first; ``None`` if they are many."""
        found: list[int] = []
        # Without an index in this order, the other way is expensive, so counting more rows still
        # pays.
        most = RARE if self.ordered else 10 * RARE
        for stretch in self.stretches:
            rows = select(self.table.c.number).where(*stretch).limit(most + 1 - len(found))
            found += connection.execute(rows).scalars()
            if len(found) > most:
                return None
        return sorted(set(found), reverse=True)

    def walk(self, connection: Connection, between: _Between, first: int) -> Iterator[list[int]]:
        """Numbers in steps, newest first; the last step is shorter than it was asked to be."""
        step, below = first, between.below
        number = self.table.c.number
        while True:
            taken: list[int] = []
            for stretch in self.stretches:
                rows = select(number).where(*stretch, number > between.above, number < below)
                taken += connection.execute(rows.order_by(number.desc()).limit(step)).scalars()
            numbers = sorted(set(taken), reverse=True)[:step]
            yield numbers
            if len(numbers) < step:
                return
            below, step = numbers[-1], _STEP


def page(
    connection: Connection,
    kind: Kind[Any, Any],
    *,
    org: str | None,
    indexes: Collection[str] | None,
    match: Match,
    after: int | None,
    limit: int,
) -> Page[Summary]:
    """Read one page, newest first."""
    above, below = times.bounds(connection, match.created_from, match.created_before)
    between = _Between(above, below if after is None else min(below, after))
    found: list[Summary] = []
    looked = 0
    for numbers in _steps(
        connection, _leads(kind, org, indexes, match), _everything(kind, org), between, limit + 1
    ):
        looked += len(numbers)
        lines = _lines(connection, numbers, match.words, indexes)
        found += (
            line
            for line in lines
            if line.key.kind == kind.name
            and org in (None, line.key.org)
            and (indexes is None or line.index in indexes)
            and match.admits(line)
        )
        if len(found) > limit:
            shown = tuple(found[:limit])
            return Page(shown, shown[-1].number)
        if looked >= LOOKED:
            return Page(tuple(found), numbers[-1])
    return Page(tuple(found), None)


def _steps(
    connection: Connection, leads: Sequence[_Lead], everything: _Lead, between: _Between, first: int
) -> Iterator[list[int]]:
    if len(leads) == 1 and leads[0].ordered:
        return leads[0].walk(connection, between, first)
    rare = [numbers for lead in leads if (numbers := lead.few(connection)) is not None]
    if rare:
        fewest = min(rare, key=len)
        return _in_steps(
            [number for number in fewest if between.above < number < between.below], first
        )
    lead = next((lead for lead in leads if lead.ordered), everything)
    return lead.walk(connection, between, first)


def _in_steps(numbers: list[int], first: int) -> Iterator[list[int]]:
    while numbers:
        yield numbers[:first]
        numbers, first = numbers[first:], _STEP


def _leads(
    kind: Kind[Any, Any], org: str | None, indexes: Collection[str] | None, match: Match
) -> list[_Lead]:
    own = records.c
    here = [own.kind == kind.name] if org is None else [own.kind == kind.name, own.org == org]
    leads = []
    for tag in match.words:
        tagged = [record_tags.c.kind == kind.name, record_tags.c.tag == tag]
        leads.append(
            _Lead(record_tags, [tagged], ordered=False)
            if org is None
            else _Lead(record_tags, [[*tagged, record_tags.c.org == org]])
        )
    if match.name is not None and org is not None:
        leads.append(_Lead(records, [[*here, own.name == match.name]], ordered=False))
    if match.prefix and org is not None:
        # The smallest text after all texts with this prefix. Both databases compare names by code
        # point.
        beyond = match.prefix[:-1] + chr(ord(match.prefix[-1]) + 1)
        leads.append(
            _Lead(records, [[*here, own.name >= match.prefix, own.name < beyond]], ordered=False)
        )
    if match.deleting:
        leads.append(_Lead(records, [[*here, own.delete_requested_at.is_not(None)]]))
    if indexes is not None:
        leads.append(
            _Lead(records, [[*here, own.index_value == value] for value in sorted(set(indexes))])
        )
    return leads


def _everything(kind: Kind[Any, Any], org: str | None) -> _Lead:
    here = [records.c.kind == kind.name]
    return _Lead(records, [here if org is None else [*here, records.c.org == org]])


def _lines(
    connection: Connection,
    numbers: Sequence[int],
    words: Collection[str],
    indexes: Collection[str] | None,
) -> list[Summary]:
    """The records of these numbers that have all the tags and one of the index values, newest
    first.

    Whole lines cost most, so they are read last.
    """
    if indexes is not None and numbers:
        listed = {"numbers": list(numbers), "values": sorted(set(indexes))}
        numbers = connection.execute(_LISTED, listed).scalars().all()
    if words and numbers:
        tags = set(words)
        has: dict[int, set[str]] = {}
        for row in connection.execute(_TAGGED, {"numbers": list(numbers), "tags": sorted(tags)}):
            has.setdefault(row.number, set()).add(row.tag)
        numbers = [number for number in numbers if has.get(number) == tags]
    if not numbers:
        return []
    rows = connection.execute(_ROWS, {"numbers": list(numbers)})
    return sorted((summary_of(row) for row in rows), key=lambda line: -line.number)

"""Tags of event files that are no curves: histograms, images, audio and texts.

Their contents are not kept, only that they are there: how many were written, and when the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cloud_ml.tracking.summary_kinds import OTHER, UNKNOWN


@dataclass(frozen=True)
class SummaryTag:
    """A tag with summaries of one kind.

    ``count`` are all that were written, also those that a restart has written again. The last one is
    the newest by its time ``last_at``, in milliseconds since 1970.
    """

    name: str
    kind: str
    count: int
    last_step: int
    last_at: int


class TagRows(Protocol):
    """The rows of the tags of one run, within a transaction."""

    def tags_of(self, name: str) -> Sequence[SummaryTag]:
        """The tags of this name, one of each kind, by kind."""

    def count_tags(self) -> int:
        """How many tags the run has."""

    def put_tag(self, tag: SummaryTag) -> None:
        """Write a tag, in the place of the one of its name and kind if there is one."""


def add_tags(rows: TagRows, tags: Iterable[SummaryTag], most: int) -> list[str]:
    """Add summaries that were read. Returns why the first one was refused, in a sentence.

    Args:
        rows: Those of the run.
        tags: What was read, with the number of new summaries.
        most: So many tags a run has at most.
    """
    count: int | None = None
    refused = []
    for tag in tags:
        there = rows.tags_of(tag.name)
        before = _same(there, tag.kind)
        if before is not None:
            rows.put_tag(_together(before, tag))
            continue
        if count is None:
            count = rows.count_tags()
        if count >= most:
            refused.append(f"tag {tag.name!r} is not listed: a job has at most {most} tags")
            continue
        rows.put_tag(replace(tag, kind=tag.kind or OTHER))
        count += 1
    return refused[:1]


def _same(there: Sequence[SummaryTag], kind: str) -> SummaryTag | None:
    """The tag that goes on. What does not say its kind goes on with the newest of its name."""
    if kind == UNKNOWN:
        return max(there, key=lambda one: one.last_at, default=None)
    return next((one for one in there if one.kind == kind), None)


def _together(before: SummaryTag, new: SummaryTag) -> SummaryTag:
    newest = new if new.last_at >= before.last_at else before
    count = before.count + new.count
    return replace(before, count=count, last_step=newest.last_step, last_at=newest.last_at)

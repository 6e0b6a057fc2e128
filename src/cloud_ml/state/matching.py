"""What a list is narrowed by, besides kind, organisation and index."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from cloud_ml.domain.records import ParentRef, Summary


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions that hold together; those left out hold for everything.

    Attributes:
        name: The exact name.
        prefix: How the name begins.
        owner: The user or the organisation to which the record belongs.
        parent: The uid of the record for which it was made.
        tags: All of these words are tags of the record (see ``Kind``).
        created_from: Made at this time or later.
        created_before: Made earlier than this.
        deleting: Only records that are marked for deletion.
    """

    name: str | None = None
    prefix: str | None = None
    owner: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()
    created_from: datetime | None = None
    created_before: datetime | None = None
    deleting: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """All tags that a record must have; its owner and its parent are two."""
        owner = () if self.owner is None else (owner_tag(self.owner),)
        parent = () if self.parent is None else (parent_tag(self.parent),)
        return (*self.tags, *owner, *parent)

    def admits(self, line: Summary) -> bool:
        """Whether a record is meant, as far as its line can tell: tags are another matter."""
        return (
            (self.name is None or line.key.name == self.name)
            and (self.prefix is None or line.key.name.startswith(self.prefix))
            and (self.created_from is None or line.created_at >= self.created_from)
            and (self.created_before is None or line.created_at < self.created_before)
            and (line.deleting or not self.deleting)
        )


EVERYTHING = Match()


def owner_tag(owner: str) -> str:
    """The tag that every record has."""
    return f"owner={owner}"


def parent_tag(uid: str) -> str:
    """The tag of the records that were made for another one."""
    return f"parent={uid}"


def all_tags(owner: str, parent: ParentRef | None, *groups: Collection[str]) -> frozenset[str]:
    """The tags of a new record."""
    parents = () if parent is None else (parent_tag(parent.uid),)
    return frozenset({owner_tag(owner)}).union(parents, *groups)

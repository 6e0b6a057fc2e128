"""Records: what a user wants (spec), what became of it (status), and what was said about it
(events).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeVar

from cloud_ml.models import codec

SpecT = TypeVar("SpecT")
StatusT = TypeVar("StatusT")
ActionT = TypeVar("ActionT")
SpecT_co = TypeVar("SpecT_co", covariant=True)
StatusT_co = TypeVar("StatusT_co", covariant=True)


def _no_tags(_: object) -> Collection[str]:
    return ()


def _as_stored(document: Any) -> Any:
    return document


def find_changed_places(before: Sequence[object], after: Sequence[object]) -> Sequence[int]:
    """The places of ``after`` that hold other objects than ``before``, or that ``before`` lacks.

    A change of one item makes one new object in a list of thousands, so the comparison is made
    without a step of Python for each item.
    """
    changed = compress(count(), map(is_not, before, after))
    return [*changed, *range(len(before), len(after))]


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list of a status that is too long to be written with each change: its items are stored one
    by one, and a commit writes those that have changed.

    An item is known by its place. It may change, but the list never becomes shorter. An item may
    have a list of its own, whose elements never change: they are stored one by one, too.

    Attributes:
        field: The name of the list, a tuple, in the status.
        item_type: What its items are.
        elements: The name of the list, a tuple, in an item.
        element_type: What the elements of that list are.
    """

    field: str
    item_type: type[Any]
    elements: str
    element_type: type[Any]


@dataclass(frozen=True, slots=True)
class Kind(Generic[SpecT, StatusT]):
    """A kind of record, and how its two halves are stored.

    ``indexed`` names the field of the status by which records are listed (``phase`` for most).
    ``spec_tags`` and ``status_tags`` say under which further words a record is found: those of the
    spec follow it, those of a status stay once it was committed. ``upgrade`` brings a spec that an
    earlier version stored into today's form. ``items`` is the long list of the status, if it has
    one.
    """

    name: str
    spec_type: type[SpecT]
    status_type: type[StatusT]
    indexed: str = "phase"
    spec_tags: Callable[[SpecT], Collection[str]] = _no_tags
    status_tags: Callable[[StatusT], Collection[str]] = _no_tags
    upgrade: Callable[[Any], Any] = _as_stored
    items: ItemList | None = None

    def decode_spec(self, document: Any) -> SpecT:
        """Read a stored spec; fields of a newer version are dropped."""
        return codec.decode(self.spec_type, self.upgrade(document), ignore_unknown=True)

    def decode_status(self, document: Any) -> StatusT:
        """Read a stored status; fields of a newer version are dropped."""
        return codec.decode(self.status_type, document, ignore_unknown=True)

    def index_of(self, status: StatusT) -> str:
        """The value under which a record with this status is listed."""
        return str(getattr(status, self.indexed))


@dataclass(frozen=True, slots=True)
class Key:
    """Which record. ``uid`` is unique for all time; ``(kind, org, name)`` among the living."""

    kind: str
    org: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ParentRef:
    """The record for which another one was made, such as the service of a replica.

    A parent was there when its child was made, and cannot be removed before its children.
    """

    kind: str
    uid: str


@dataclass(frozen=True, slots=True)
class Record(Generic[SpecT_co, StatusT_co]):
    """A spec and a status under one key.

    ``generation`` counts changes of the spec; ``revision`` is taken anew at any change, from one
    counter for the whole store, so that revision order is commit order. ``owner`` is the user or
    the organisation to which the record belongs; ``parent`` is the record for which it was made.
    """

    key: Key
    owner: str
    generation: int
    revision: int
    created_at: datetime
    updated_at: datetime
    spec: SpecT_co
    status: StatusT_co
    delete_requested_at: datetime | None = None
    parent: ParentRef | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of a list: narrow on purpose, so that a page costs the same at any table size."""

    key: Key
    owner: str
    number: int
    index: str
    created_at: datetime
    updated_at: datetime
    deleting: bool
    title: str = ""


class EventType(StrEnum):
    """As in Kubernetes: something to know, or something to look at."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One sentence about a record, written in the transaction of the change it tells of."""

    at: datetime
    reason: str
    message: str
    type: EventType = EventType.NORMAL
    id: int = 0


@dataclass(frozen=True, slots=True)
class Decision(Generic[StatusT, ActionT]):
    """What follows from one look: a new status to commit, *or* actions on the status that stands.

    Never both: an action may only follow from what is already committed. ``requeue_at`` asks for
    another look at that time even if nothing happens.
    """

    status: StatusT | None = None
    events: Sequence[Event] = ()
    actions: Sequence[ActionT] = ()
    requeue_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.status is not None and self.actions:
            raise ValueError("a decision either commits a status or acts on the committed one")

"""The smallest kind of resource that does something: a note, which is published a while after it
was written.

Its description, its decision and its wire types are all that there is of it. Tests add it to a
platform, to an SDK client and to the command line, and it has everything that every kind has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.records import Decision, Event, Kind, Record
from cloud_ml.domain.tenancy import Operation
from cloud_ml.models import common
from cloud_ml.models.resource import ResourceType, ResourceView
from cloud_ml.usecases.resources import Resource

LONGEST = 1000


class Phase(StrEnum):
    """Where a note stands."""

    DRAFT = "Draft"
    PUBLISHED = "Published"


@dataclass(frozen=True)
class NoteSpec:
    """What was written."""

    text: str


@dataclass(frozen=True)
class NoteStatus:
    """What became of it. ``copies`` are made before it is published."""

    phase: Phase = Phase.DRAFT
    copies: int = 0


@dataclass(frozen=True, kw_only=True)
class NewNote:
    """A note to be written."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Note(ResourceView):
    """A note."""

    text: str
    copies: int = 0


NOTES: ResourceType[NewNote, Note] = ResourceType(
    name="note",
    plural="notes",
    help="Notes: create, list, delete.",
    new=NewNote,
    view=Note,
    columns={"TEXT": lambda note: note.text},
    succeeded=frozenset({"Published"}),
)
NOTE: Kind[NoteSpec, NoteStatus] = Kind("note", NoteSpec, NoteStatus)
NOTE_RESOURCE = Resource(
    type=NOTES,
    kind=NOTE,
    operation=Operation.RUN_JOBS,
    spec_of=lambda new: NoteSpec(common.check_text("text", new.text, limit=LONGEST)),
    first_status=lambda _: NoteStatus(),
    fields=lambda record: {"text": record.spec.text, "copies": record.status.copies},
    has_controller=True,
)


def decide(record: Record[NoteSpec, NoteStatus], now: datetime) -> Decision[NoteStatus, str]:
    """Make a copy, then publish."""
    events: Sequence[Event]
    if record.status.phase is Phase.PUBLISHED:
        return Decision()
    if not record.status.copies:
        return Decision(NoteStatus(Phase.DRAFT, 1), events=[Event(now, "Copied", "a copy is made")])
    events = [Event(now, "Published", f"published: {record.spec.text}")]
    return Decision(NoteStatus(Phase.PUBLISHED, record.status.copies), events=events)

"""What a list of jobs is narrowed by, from the words of a request to the conditions of a store.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from cloud_ml.domain.jobs.kind import framework_tag, label_tag
from cloud_ml.domain.workloads.phases import WIRE_STATES, Phase
from cloud_ml.models import codec, common
from cloud_ml.state.matching import Match

MOST_LABELS = 10
_PHASES = {phase.lower(): phase for phase in Phase}
_OTHER_WORDS = dict.fromkeys(("cancelled", "canceled", "deleted", "killed"), Phase.STOPPED)
"""Words for phases that are reasons of jobs, or states on other platforms."""
_LONGEST_WORD = 40
_NAME = re.compile(r"[a-z0-9-]{1,63}|[a-z0-9-]{0,63}\*")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The words of a request; what is left out does not narrow. All conditions hold together.

    Attributes:
        state: Phases, or states of the original wire, separated by commas.
        name: A name, or the beginning of names followed by ``*``.
        framework: One that the job asked for, or ran with.
        user: Who submitted it.
        labels: Each ``key=value``.
        created_after: RFC 3339; jobs made then or later.
        created_before: RFC 3339; jobs made earlier.
    """

    state: str | None = None
    name: str | None = None
    framework: str | None = None
    user: str | None = None
    labels: Sequence[str] = ()
    created_after: str | None = None
    created_before: str | None = None

    def phases(self) -> Collection[str] | None:
        """The phases that are meant; ``None`` for all.

        Raises:
            InvalidRequest: A word is none.
        """
        return phases_of(self.state) if self.state else None

    def match(self) -> Match:
        """All other conditions.

        Raises:
            InvalidRequest: One of them is malformed.
        """
        name = self.name or None
        if name is not None and not _NAME.fullmatch(name):
            raise common.refuse("name", name, "a job's name, or the beginning of one followed by *")
        tags = (
            []
            if not self.framework
            else [framework_tag(common.check_text("framework", self.framework, limit=128))]
        )
        return Match(
            name=None if name is None or name.endswith("*") else name,
            prefix=(name[:-1] or None) if name is not None and name.endswith("*") else None,
            owner=common.check_text("user", self.user, limit=128) if self.user else None,
            tags=(*tags, *_labels(self.labels)),
            created_from=read_time("created_after", self.created_after),
            created_before=read_time("created_before", self.created_before),
        )


def phases_of(states: str) -> Collection[str]:
    """The phases that ``states`` names, separated by commas.

    A word is a phase, or else a state of the original wire (``creating``, which means two phases).
    Case does not matter.

    Raises:
        InvalidRequest: A word is neither.
    """
    found: set[str] = set()
    for word in map(str.strip, states.split(",")):
        key = word.lower()
        named = {phase for phase in Phase if phase.lower() == key} or {
            phase for phase in Phase if WIRE_STATES[phase] == key
        }
        if not named:
            allowed = f"{', '.join(Phase)}, or {', '.join(dict.fromkeys(WIRE_STATES.values()))}; separated by commas"
            raise common.refuse("state", word, allowed, suggestion=_phase_near(key))
        found |= named
    return found


def _phase_near(word: str) -> str:
    if word in _OTHER_WORDS:
        return _OTHER_WORDS[word]
    near = get_close_matches(word[:_LONGEST_WORD], _PHASES, n=1)
    return _PHASES[near[0]] if near else ""


def _labels(labels: Sequence[str]) -> list[str]:
    if len(labels) > MOST_LABELS:
        raise common.refuse("label", f"{len(labels)} labels", f"at most {MOST_LABELS}")
    tags = []
    for label in labels:
        name, equals, value = common.check_text("label", label, limit=512).partition("=")
        if not name or not equals:
            raise common.refuse("label", label, "key=value")
        tags.append(label_tag(name, value))
    return tags


def read_time(field: str, text: str | None) -> datetime | None:
    """The time in a parameter; ``None`` where there is none.

    Raises:
        InvalidRequest: It is no RFC 3339.
    """
    if not text:
        return None
    try:
        return codec.parse_time(text)
    except (ValueError, OverflowError):
        raise common.refuse(
            field, text, "a time with its offset, such as 2026-01-31T12:00:00Z"
        ) from None

"""A tiny kind of record to try stores with, and shorthand to make some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from threading import Barrier
from typing import Any, TypeVar

from cloud_ml.domain.records import Event, Kind, Record
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import Once, StateStore

R = TypeVar("R")


class Phase(StrEnum):
    WAITING = "Waiting"
    BUSY = "Busy"
    DONE = "Done"


@dataclass(frozen=True)
class SampleSpec:
    text: str
    count: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    phase: Phase = Phase.WAITING
    note: str = ""
    since: datetime | None = None


SAMPLE: Kind[SampleSpec, Progress] = Kind("wish", SampleSpec, Progress)
FOUND: Kind[SampleSpec, Progress] = Kind(
    "found",
    SampleSpec,
    Progress,
    spec_tags=lambda spec: {f"{name}={value}" for name, value in spec.tags.items()},
    status_tags=lambda status: [f"note={status.note}"] if status.note else [],
)
OTHER: Kind[SampleSpec, Progress] = Kind("other", SampleSpec, Progress)
NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
Made = Record[SampleSpec, Progress]


def make(
    store: StateStore,
    name: str = "one",
    *,
    kind: Kind[SampleSpec, Progress] = SAMPLE,
    org: str = "red",
    phase: Phase = Phase.WAITING,
    **more: Any,
) -> Made:
    arguments: dict[str, Any] = {
        "owner": "ann",
        "spec": SampleSpec("a bike"),
        "status": Progress(phase),
        "now": NOW,
    }
    return store.create(kind, org=org, name=name, **(arguments | more))


def commit(store: StateStore, record: Made, phase: Phase = Phase.BUSY, **more: Any) -> Made:
    arguments = {"expected_revision": record.revision, "fence": None, "now": LATER} | more
    return store.commit_status(SAMPLE, record.key.uid, Progress(phase), **arguments)


def once(token: str = "a token", *, expires_at: datetime = LATER) -> Once:
    return Once(token, expires_at)


def list_messages(store: StateStore, record: Made) -> list[str]:
    return [event.message for event in store.events(record.key.uid)]


def event(message: str) -> Event:
    return Event(NOW, "Said", message)


def race(actions: Sequence[Callable[[], R]]) -> list[R | CloudMlError]:
    """Run all actions at the same moment, each in its thread; errors of ours are results."""
    start = Barrier(len(actions))

    def run(action: Callable[[], R]) -> R | CloudMlError:
        start.wait()
        try:
            return action()
        except CloudMlError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))

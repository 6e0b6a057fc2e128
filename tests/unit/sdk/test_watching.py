from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from cloud_ml.errors import Forbidden, StartAgain, TransportError
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import Job, JobChange, JobEvent
from cloud_ml.sdk.pieces import EventReader, ServerEvent
from cloud_ml.sdk.retries import RetryPolicy
from cloud_ml.sdk.watching import follow_changes, follow_events

NOW = datetime(2026, 1, 31, tzinfo=UTC)
PATIENCE = RetryPolicy(attempts=3)


def message(revision: int) -> bytes:
    job = Job(
        uid="u",
        name="n",
        org="o",
        owner="w",
        revision=revision,
        phase="Running",
        state="",
        attempt=1,
        created_at=NOW,
        updated_at=NOW,
    )
    change = codec.encode(JobChange(revision=revision, uid="u", name="n", org="o", job=job)) | {
        "newer_field": 1
    }
    return f"id: {revision}\nevent: job\ndata: {json.dumps(change)}\n\n".encode()


@dataclass
class Play:
    """Each stream gives some bytes and then ends, or breaks."""

    streams: list[tuple[bytes, Exception | None]]
    opened: list[int | None] = field(default_factory=list)

    @contextmanager
    def __call__(self, after: int | None) -> Iterator[Iterable[bytes]]:
        self.opened.append(after)
        content, error = self.streams.pop(0)
        yield self.chunks(content, error)

    @staticmethod
    def chunks(content: bytes, error: Exception | None) -> Iterator[bytes]:
        yield from (content[i : i + 7] for i in range(0, len(content), 7))
        if error:
            raise error


def test_events_are_read_as_the_standard_has_them() -> None:
    stream = (
        b"retry: 1\n: comment\n\nid: 3\nevent: job\ndata: a\ndata:b\n\n\r\n"
        b"data: x\r\n\r\nevent: none\n\nid: y\ndata:\n\ndata: cut"
    )
    reader = EventReader()
    pieces = (stream[:30], stream[30:31], stream[31:])
    assert [event for piece in pieces for event in reader.feed(piece)] == [
        ServerEvent(3, "job", "a\nb"),
        ServerEvent(None, "message", "x"),
        ServerEvent(None, "message", ""),
    ]


def test_a_cut_stream_is_taken_up_behind_the_last_event() -> None:
    ready = b"id: 4\nevent: ready\ndata: {}\n\n"
    play = Play([
        (ready + message(5) + message(7)[:-9], TransportError("cut")),
        (b"", TransportError("down")),
        (message(7), None),
        (ready + b"event: job\n", Forbidden("no")),
    ])  # fmt: skip
    naps: list[float] = []
    changes = follow_changes(play, patience=PATIENCE, sleep=naps.append)
    assert [next(changes).revision for _ in range(2)] == [5, 7]
    with pytest.raises(Forbidden):
        next(changes)
    assert play.opened == [None, 5, 5, 7]
    assert len(naps) == 2


def test_a_server_that_stays_away_is_told() -> None:
    play = Play([(b"", TransportError("down"))] * 3)
    with pytest.raises(TransportError):
        next(follow_changes(play, after=9, patience=PATIENCE, sleep=lambda _: None))
    assert play.opened == [9] * 3


def test_what_is_said_is_told_once_over_cuts_until_the_stream_says_that_it_ends() -> None:
    def encoded_event(number: int) -> bytes:
        event = JobEvent(id=number, at=NOW, type="Normal", reason="Said", message=f"{number}")
        return f"id: {number}\nevent: said\ndata: {json.dumps(codec.encode(event))}\n\n".encode()

    end = b"event: end\ndata: {}\n\n"
    play = Play(
        [
            (encoded_event(1) + encoded_event(2), TransportError("cut")),
            (b": nothing new\n\n", None),
            (encoded_event(3) + end, None),
        ]
    )
    found = list(follow_events(play, after=0, patience=PATIENCE, sleep=lambda _: None))
    assert [event.message for event in found] == ["1", "2", "3"]
    assert play.opened == [0, 2, 2]


class Refused(Play):
    """A play whose server was restored: the first attempts to go on are refused."""

    def __init__(self, streams: list[tuple[bytes, Exception | None]], refusals: int) -> None:
        super().__init__(streams)
        self.refusals = refusals

    @contextmanager
    def __call__(self, after: int | None) -> Iterator[Iterable[bytes]]:
        if after is not None and after < 100 and self.refusals:
            self.refusals -= 1
            self.opened.append(after)
            raise StartAgain("restored")
        with super().__call__(after) as chunks:
            yield chunks


def test_after_a_restore_everything_is_told_anew_and_watched_from_there() -> None:
    cut = TransportError("cut")
    play = Refused(
        [(message(8), cut), (message(105), None), (b"", Forbidden("enough"))], refusals=1
    )

    def relist() -> Iterator[JobChange]:
        yield JobChange(revision=104, uid="", name="", org="")
        yield JobChange(revision=104, uid="a", name="a", org="o")

    changes = follow_changes(play, relist=relist, patience=PATIENCE, sleep=lambda _: None)  # type: ignore[arg-type]
    assert [next(changes).revision for _ in range(3)] == [8, 104, 105]
    assert play.opened == [None, 8, 104]


def test_after_a_restore_one_job_is_told_as_it_stands() -> None:
    play = Refused([(message(8), TransportError("cut")), (message(105), None)], refusals=1)
    changes = follow_changes(play, patience=PATIENCE, sleep=lambda _: None)
    assert [next(changes).revision for _ in range(2)] == [8, 105]
    assert play.opened == [None, 8, None]


def test_a_server_that_always_refuses_is_believed() -> None:
    play = Refused([], refusals=99)

    def relist() -> Iterator[JobChange]:
        yield JobChange(revision=1, uid="", name="", org="")

    with pytest.raises(StartAgain):
        next(follow_changes(play, after=1, relist=relist, patience=PATIENCE, sleep=lambda _: None))  # type: ignore[arg-type]
    assert play.opened == [1, 1, 1]

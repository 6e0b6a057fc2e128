from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from cloud_ml.errors import NotFound, TransportError
from cloud_ml.models.jobs.job import Job
from cloud_ml.sdk.jobs.follow import follow_log
from cloud_ml.sdk.pieces import LastLines
from cloud_ml.sdk.retries import RetryPolicy

NOW = datetime(2026, 1, 31, tzinfo=UTC)
PATIENCE = RetryPolicy(attempts=3)


def _job(phase: str, attempt: int = 1) -> Job:
    return Job(
        uid="u",
        name="n",
        org="o",
        owner="w",
        revision=1,
        phase=phase,
        state="",
        attempt=attempt,
        created_at=NOW,
        updated_at=NOW,
    )


@dataclass
class Play:
    """Each stream gives the log up to a point and then ends, or breaks; then the job is in a
    phase.
    """

    streams: list[tuple[bytes, bool]]
    phases: list[str]
    opened: list[bool] = field(default_factory=list)
    waits: int = 0
    attempts: list[int] = field(default_factory=list)

    @contextmanager
    def open(self, *, follow: bool, offset: int = 0) -> Iterator[Iterable[bytes]]:
        self.opened.append(follow)
        content, breaks = self.streams.pop(0)
        yield self._chunks(content[offset:], breaks)

    def job(self, newer_than: int | None = None) -> Job:
        if newer_than is not None:
            self.waits += 1
            return _job("Running")
        return _job(self.phases.pop(0), self.attempts.pop(0) if self.attempts else 1)

    @staticmethod
    def _chunks(content: bytes, breaks: bool) -> Iterator[bytes]:
        for i in range(0, len(content), 3):
            yield content[i : i + 3]
        if breaks:
            raise TransportError("cut")


def _followed(play: Play, naps: list[float] | None = None, **options: int) -> bytes:
    naps = [] if naps is None else naps
    return b"".join(follow_log(play, patience=PATIENCE, sleep=naps.append, **options))  # type: ignore[arg-type]


def test_a_log_without_cuts_is_given_once() -> None:
    play = Play([(b"one\ntwo\n", False), (b"one\ntwo\n", False)], ["Succeeded"])
    assert _followed(play) == b"one\ntwo\n"
    assert play.opened == [True, False]


def test_cuts_lose_and_repeat_nothing() -> None:
    whole = b"one\none\none\ntwo\n"
    play = Play(
        [(b"one\non", True), (b"one\none\none\n", True), (whole, False), (whole, False)], ["Failed"]
    )
    naps: list[float] = []
    assert _followed(play, naps) == whole
    assert len(naps) == 2


def test_what_was_written_while_the_server_was_away_is_given_at_the_end() -> None:
    play = Play([(b"one\n", False), (b"one\nlast words\n", False)], ["Succeeded"])
    assert _followed(play) == b"one\nlast words\n"


def test_a_stream_that_ends_before_its_job_is_asked_for_again() -> None:
    play = Play([(b"", False), (b"one\n", False), (b"one\n", False)], ["Queued", "Succeeded"])
    assert _followed(play) == b"one\n"
    assert play.waits == 1


def test_lines_begin_at_the_end_of_what_is_there() -> None:
    play = Play(
        [(b"1\n2\n3\n4", False), (b"1\n2\n3\n4!\n5\n", False), (b"1\n2\n3\n4!\n5\n", False)],
        ["Succeeded"],
    )
    assert _followed(play, lines=2) == b"3\n4!\n5\n"


def test_progress_renews_the_patience() -> None:
    whole = bytes(range(65, 75))
    cuts = [(whole[:i], True) for i in range(1, 10)]
    assert _followed(Play([*cuts, (whole, False), (whole, False)], ["Succeeded"])) == whole


def test_patience_ends() -> None:
    play = Play([(b"one", True), (b"one", True), (b"one", True), (b"one", True)], [])
    given = []
    with pytest.raises(TransportError, match="cut"):
        given.extend(follow_log(play, patience=PATIENCE, sleep=lambda _: None))
    assert b"".join(given) == b"one"
    assert len(play.opened) == 3


def test_a_refusal_is_handed_on_at_once() -> None:
    class Gone(Play):
        @contextmanager
        def open(self, *, follow: bool, offset: int = 0) -> Iterator[Iterable[bytes]]:
            raise NotFound("there is no job n")
            yield b""

    with pytest.raises(NotFound):
        _followed(Gone([], []))


def test_one_attempt_is_over_when_the_next_has_begun() -> None:
    play = Play([(b"a\n", False), (b"a\n", False)], ["Running"], attempts=[2])
    assert _followed(play, attempt=1) == b"a\n"


def test_a_saved_job_has_nothing_to_follow() -> None:
    assert _followed(Play([(b"", False), (b"", False)], ["Saved"])) == b""


@pytest.mark.parametrize(
    ("content", "lines", "tail"),
    [
        (b"", 2, b""),
        (b"1\n2\n3\n", 2, b"2\n3\n"),
        (b"1\n2\n3", 2, b"2\n3"),
        (b"1\n", 5, b"1\n"),
        (b"1\n2\n", 0, b""),
        (b"1\n2", 0, b""),
    ],
)
def test_last_lines(content: bytes, lines: int, tail: bytes) -> None:
    last = LastLines(lines)
    for i in range(0, len(content), 2):
        last.feed(content[i : i + 2])
    assert (last.size, last.text()) == (len(content), tail)

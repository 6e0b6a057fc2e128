"""The stages of a job as bars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.cli.jobs.timeline import Span, spans, timeline
from support.fake_api import make_job

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


STAGES = {"claimed": _at(3), "environment": _at(8), "started": _at(9), "ended": _at(19)}
LONG = {**STAGES, "fetched": _at(4), "resolved": _at(5), "installed": _at(7), "output": _at(12)}


def _named(found: list[Span]) -> list[tuple[str, float, bool]]:
    return [(span.name, span.seconds, span.open) for span in found]


def test_a_job_that_has_ended_tells_where_its_time_went() -> None:
    job = make_job(
        "a",
        phase="Succeeded",
        queued_at=NOW,
        starting_at=_at(2),
        finished_at=_at(20),
        stages=STAGES,
    )
    assert _named(spans(job, {}, _at(100))) == [
        ("queue", 2, False),
        ("hand over", 1, False),
        ("environment", 5, False),
        ("start", 1, False),
        ("run", 10, False),
    ]


def test_what_was_new_to_the_machine_shows_what_took_long() -> None:
    job = make_job(
        "a", phase="Succeeded", queued_at=NOW, starting_at=_at(2), finished_at=_at(20), stages=LONG
    )
    assert [(span.name, span.seconds) for span in spans(job, {}, _at(100))] == [
        ("queue", 2),
        ("hand over", 1),
        ("fetch", 1),
        ("resolve", 1),
        ("install", 2),
        ("environment", 1),
        ("start", 1),
        ("to first output", 3),
        ("run", 7),
    ]


@pytest.mark.parametrize(
    ("phase", "reached", "last"),
    [
        ("Starting", [], "hand over"),
        ("Starting", ["claimed"], "environment"),
        ("Starting", ["claimed", "fetched"], "resolve"),
        ("Starting", ["claimed", "fetched", "resolved"], "install"),
        ("Starting", ["claimed", "environment"], "start"),
        ("Running", ["claimed", "environment", "started"], "run"),
        ("Running", ["claimed", "environment", "started", "output"], "run"),
    ],
)
def test_what_goes_on_is_open(phase: str, reached: list[str], last: str) -> None:
    job = make_job("a", phase=phase, queued_at=NOW, starting_at=_at(2))
    found = spans(job, {name: LONG[name] for name in reached}, _at(50))
    assert (found[-1].name, found[-1].open, found[-1].end) == (last, True, _at(50))


@pytest.mark.parametrize(
    ("reached", "names"),
    [
        (["ended"], ["queue", "hand over"]),
        (["claimed", "ended"], ["queue", "hand over", "environment"]),
        (["claimed", "environment", "ended"], ["queue", "hand over", "environment", "start"]),
        ([], ["queue", "hand over"]),
    ],
)
def test_what_never_started_has_not_run(reached: list[str], names: list[str]) -> None:
    stages = {name: STAGES[name] for name in reached}
    job = make_job(
        "a", phase="Failed", queued_at=NOW, starting_at=_at(2), finished_at=_at(19), stages=stages
    )
    assert [span.name for span in spans(job, {}, _at(50))] == names


def test_stages_of_a_newer_server_have_their_own_names() -> None:
    job = make_job("a", phase="Running", queued_at=NOW, starting_at=_at(2))
    assert [span.name for span in spans(job, {"polished": _at(3)}, _at(4))] == [
        "queue",
        "polished",
        "polished",
    ]


def test_before_the_start_there_is_the_queue_and_a_saved_job_has_no_story() -> None:
    assert spans(make_job("a", phase="Saved"), {}, NOW) == []
    assert _named(spans(make_job("a", queued_at=NOW), {}, _at(7))) == [("queue", 7, True)]
    ended = make_job("a", phase="Stopped", queued_at=NOW, finished_at=_at(3), updated_at=NOW)
    assert _named(spans(ended, {}, _at(7))) == [("pause", 3, False)]


def test_bars_stand_where_they_belong() -> None:
    lines = list(
        timeline([Span("queue", NOW, _at(5)), Span("run", _at(5), _at(20), open=True)], 20)
    )
    assert [line.partition("  ")[0] for line in lines] == ["queue", "run  ".strip()]
    assert lines[0].endswith("    5.0 s  ━━━━━")
    assert lines[1].endswith("   15.0 s       " + "━" * 15 + "…")
    backwards = list(timeline([Span("a", NOW, _at(-3))], 20))
    assert backwards[0].endswith("0 ms  ━")

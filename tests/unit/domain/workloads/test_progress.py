"""What tasks report, and when an attempt has come no farther than the last."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.progress import (
    MOST_METRICS,
    NO_END,
    NOTHING_REACHED,
    Milestone,
    Progress,
    milestone_of,
    read_reports,
    remaining_s,
)

AT = datetime(2026, 1, 2, tzinfo=UTC)


def lines(*entries: dict[str, Any]) -> bytes:
    documents = ({"time": AT.timestamp(), **entry} for entry in entries)
    return b"".join(f"\n{json.dumps(one)}\n".encode() for one in documents)


def test_the_last_of_each_figure_counts() -> None:
    note = lines({"step": 4, "of": 8}, {"metrics": {"loss": 2, "auc": 0.5}}, {"step": 5})
    note += lines({"metrics": {"loss": 1.5}}) + b'{"step": 9'
    assert read_reports(note) == Progress(AT, 5, 8, 0.5, {"loss": 1.5, "auc": 0.5})
    assert read_reports(lines({"fraction": 0.25})) == Progress(AT, fraction=0.25)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\xff\x00{}",
        b"[1]\n7\nnull",
        b'{"step": 1}',
        b'{"time": "now", "step": 1}',
        b'{"time": 1e400, "step": 1}',
        b'{"time": 1, "metrics": [1]}',
        b'{"time": 1, "step": 1, "more": "' + b"x" * 10_000 + b'"}',
        b"[" * 8000,
    ],
)
def test_what_is_no_report_is_left_out(note: bytes) -> None:
    assert read_reports(note) is None
    assert read_reports(note + lines({"step": 3})) == Progress(AT, 3)


@pytest.mark.parametrize(
    "entry",
    [
        {"step": -1},
        {"step": True},
        {"step": 1.5},
        {"step": 1 << 63},
        {"fraction": 1.5},
        {"fraction": float("nan")},
        {"fraction": "half"},
        {"metrics": {"loss": float("nan"), "a\nb": 1, "": 1, "x" * 200: 1, "c": 10**400}},
    ],
)
def test_numbers_out_of_bounds_are_left_out(entry: dict[str, Any]) -> None:
    assert read_reports(lines(entry)) == Progress(AT)


def test_figures_are_bounded() -> None:
    found = read_reports(lines(*({"metrics": {f"m{number}": number}} for number in range(100))))
    assert found is not None
    assert list(found.metrics) == [f"m{number}" for number in range(100 - MOST_METRICS, 100)]


def test_a_milestone_is_the_highest_step_of_reports_and_checkpoints() -> None:
    reports = [Progress(AT, 5), Progress(AT, 7, 10, 0.7)]
    saved = [NotedCheckpoint("b", None, AT), NotedCheckpoint("step-9", 9, AT)]
    later = NotedCheckpoint("c", None, AT + timedelta(1))
    found = milestone_of(reports, [later, *saved])
    assert (found.step, found.fraction) == (9, 0.7)
    assert found.checkpoint.startswith("c ")
    assert milestone_of([], []) == NOTHING_REACHED


@pytest.mark.parametrize(
    ("before", "after", "further"),
    [
        (NOTHING_REACHED, NOTHING_REACHED, False),
        (NOTHING_REACHED, Milestone(0), True),
        (Milestone(5), Milestone(5), False),
        (Milestone(5), Milestone(3), False),
        (Milestone(5), Milestone(6), True),
        (Milestone(5), NOTHING_REACHED, False),
        (Milestone(5, 0.5), Milestone(5, 0.6), True),
        (Milestone(checkpoint="a 1"), Milestone(checkpoint="a 1"), False),
        (Milestone(checkpoint="a 1"), Milestone(checkpoint="a 2"), True),
        (Milestone(checkpoint="a 1"), NOTHING_REACHED, False),
    ],
)
def test_only_something_new_is_progress(
    before: Milestone, after: Milestone, *, further: bool
) -> None:
    assert after.is_beyond(before) == further


def test_the_same_end_counts_until_there_is_progress() -> None:
    end = NO_END
    seen = []
    for role, code, step in [
        ("worker", 1, None),
        ("worker", 1, None),
        ("ps", 1, None),
        ("ps", 2, None),
        ("ps", 2, 5),
        ("ps", 2, 5),
        ("ps", 2, 4),
        ("ps", 2, 6),
    ]:
        end = end.followed_by(role, "NonZeroExit", code, Milestone(step))
        seen.append(end.times)
    assert seen == [1, 2, 1, 1, 1, 2, 3, 1]
    assert end.milestone == Milestone(6)


@pytest.mark.parametrize(
    ("done", "begun", "ran_s", "expected"),
    [
        ({"fraction": 0.25}, 0.0, 10.0, 30.0),
        ({"step": 15, "of": 20}, 0.5, 10.0, 10.0),  # it went on from a checkpoint
        ({"step": 25, "of": 20}, 0.0, 10.0, 0.0),
        ({"step": 15}, 0.0, 10.0, None),
        ({"fraction": 0.5}, 0.5, 10.0, None),
        ({"fraction": 0.5}, 0.0, 0.0, None),
        ({"fraction": 5e-324}, 0.0, 10.0, None),  # it was infinite, and `jobs top` failed for all
        ({"step": 3, "of": 4}, 0.0, 251e9, None),  # a report of the year 9999
    ],
)
def test_the_time_that_is_left_follows_from_the_part_that_is_done(
    done: dict[str, Any], begun: float, ran_s: float, expected: float | None
) -> None:
    found = remaining_s(Progress(at=datetime(2026, 1, 1, tzinfo=UTC), **done), begun, ran_s)
    assert found == (None if expected is None else pytest.approx(expected))

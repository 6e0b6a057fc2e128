"""The sentence with which ``jobs submit --watch`` ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.cli.watching import verdict
from support.fake_api import make_job

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"phase": "Succeeded", "reason": "Completed"}, "mnist succeeded after 1.5 s"),
        (
            {"phase": "Failed", "reason": "NonZeroExit", "message": "master-0 exited with code 2"},
            "mnist failed after 1.5 s: NonZeroExit: master-0 exited with code 2",
        ),
        (
            {"phase": "Failed", "reason": "OOMKilled", "message": "OOMKilled: 100M exceeded"},
            "mnist failed after 1.5 s: OOMKilled: 100M exceeded",
        ),
        ({"phase": "Stopped", "reason": "Cancelled"}, "mnist was stopped after 1.5 s: Cancelled"),
    ],
)
def test_the_end_in_one_sentence_that_names_the_reason_once(facts: dict[str, str], sentence: str) -> None:
    job = make_job("mnist", started_at=STARTED, finished_at=STARTED + timedelta(seconds=1.5), **facts)
    assert verdict(job) == sentence

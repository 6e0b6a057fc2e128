"""The sentence with which ``jobs submit --watch`` ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.cli.display.watching import conclude, verdict
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.job import JobEvent, JobOutputs
from support.fake_api import make_job

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"phase": "Succeeded", "reason": "Completed"}, "mnist succeeded after 1.5 s"),
        ({"phase": "Succeeded", "attempt": 3}, "mnist succeeded in attempt 3, after 1.5 s"),
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
def test_the_end_in_one_sentence_that_names_the_reason_once(
    facts: dict[str, Any], sentence: str
) -> None:
    job = make_job(
        "mnist", started_at=STARTED, finished_at=STARTED + timedelta(seconds=1.5), **facts
    )
    assert verdict(job) == sentence


@dataclass
class Handle:
    """A job whose events can be read, or not."""

    stored_events: list[JobEvent] = field(default_factory=list)
    answers: bool = True

    def events(self) -> list[JobEvent]:
        if not self.answers:
            raise Unavailable("the server is away")
        return self.stored_events


LOST = "1 file not saved as outputs, storage quota exceeded: model.pt (30M)"
EVENTS = [
    JobEvent(id=1, at=STARTED, type="Normal", reason="OutputsNotSaved", message="1 link not saved"),
    JobEvent(id=2, at=STARTED, type="Warning", reason="OutputsNotSaved", message=LOST),
    JobEvent(id=3, at=STARTED, type="Warning", reason="ValueMasked", message="something else"),
]


@pytest.mark.parametrize(
    ("handle", "sentence"),
    [
        (Handle(EVENTS), LOST),
        (Handle(answers=False), "1 file could not be saved. See why: cloudml jobs events mnist"),
    ],
)
def test_a_job_whose_result_was_not_saved_says_so_at_its_end(
    handle: Handle, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It succeeded with exit code 0 and not a word, while the only file that it wrote was gone."""
    outputs = JobOutputs(uri="fds://b", files=0, bytes=0, not_kept=1)
    conclude(handle, make_job("mnist", phase="Succeeded", reason="Completed", outputs=outputs))
    assert capsys.readouterr().err.splitlines() == ["mnist succeeded", f"  {sentence}"]


def test_files_outside_the_working_directory_are_told_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    not_saved = JobEvent(
        id=4,
        at=STARTED,
        type="Warning",
        reason="FilesNotKept",
        message="1 file outside: /tmp/w.pt.",
    )
    conclude(
        Handle([EVENTS[2], not_saved]), make_job("mnist", phase="Succeeded", reason="Completed")
    )
    assert capsys.readouterr().err.splitlines() == [
        "mnist succeeded",
        "  1 file outside: /tmp/w.pt.",
    ]


def test_nothing_is_said_of_a_job_that_lost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(Handle(answers=False), make_job("mnist", phase="Succeeded", reason="Completed"))
    assert capsys.readouterr().err.splitlines() == ["mnist succeeded"]

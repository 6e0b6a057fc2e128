"""The table of jobs: a reason where it says something, how long a job ran, and more on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.cli.jobs.table import HEADER, WIDE_HEADER, rows
from cloud_ml.models.jobs.job import JobDetails, JobSummary

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def line(
    details: JobDetails | None, phase: str = "Failed", *, deleting: bool = False
) -> JobSummary:
    return JobSummary(
        uid="u-1",
        name="mnist",
        org="default",
        owner="mei",
        phase=phase,
        state="failed",
        created_at=NOW,
        updated_at=NOW,
        deleting=deleting,
        details=details,
    )


def cells(job: JobSummary, *, wide: bool = False) -> dict[str, str]:
    (row,) = rows([job], NOW + timedelta(minutes=2), wide=wide)
    return dict(zip(WIDE_HEADER if wide else HEADER, row, strict=True))


def test_a_job_that_failed() -> None:
    ended = JobDetails(
        reason="NonZeroExit", started_at=NOW, finished_at=NOW + timedelta(seconds=80), exit_code=2,
        arguments=["--lr", "0.1", "two words"],
    )  # fmt: skip
    shown = cells(line(ended), wide=True)
    assert (shown["STATE"], shown["REASON"], shown["DURATION"], shown["EXIT CODE"]) == (
        "Failed", "NonZeroExit", "1 m 20 s", "2",
    )  # fmt: skip
    assert (shown["ARGUMENTS"], shown["OWNER"], shown["UID"]) == (
        "--lr 0.1 'two words'",
        "mei",
        "u-1",
    )


@pytest.mark.parametrize(
    ("excerpt", "shown"),
    [
        (
            "exited with code 1: ModuleNotFoundError: No module named 'x' (train.py, line 3); add",
            "ModuleNotFoundError",
        ),
        (
            "exited with code 1: AssertionError (train.py, line 3: assert loss > 0)",
            "AssertionError",
        ),
        ("exited with code 1: NotImplementedError", "NotImplementedError"),
        ("exited with code 1: MissingRows: 3 (data.py, line 9)", "MissingRows"),
        ("exited with code 2: KeyError: 'a'; from: ValueError: b", "KeyError"),
        ("exited with code 3 (a usage error): OSError: [Errno 28] No space left", "OSError"),
        ("exited with code 3 (a usage error): FileNotFoundError: data.csv", "FileNotFoundError"),
        ("exited with code 1: torch.cuda.OutOfMemoryError: CUDA out of memory", "OutOfMemoryError"),
        ("exited with code 2: unrecognized arguments: --lrr", "NonZeroExit"),
        ("exited with code 1: last output: KeyError: not raised", "NonZeroExit"),
        ("exited with code 1: Fatal Python error: Segmentation fault", "NonZeroExit"),
        ("exited with code 1: ERROR: it broke", "NonZeroExit"),
        ("exited with code 1: Error: it broke", "NonZeroExit"),
        ("exited with code 1: PyTorch is not here", "NonZeroExit"),
        ("exited with code 1", "NonZeroExit"),
        ("", "NonZeroExit"),
    ],
)
def test_an_exception_is_told_by_its_type(excerpt: str, shown: str) -> None:
    details = JobDetails(reason="NonZeroExit", message=f"master-0 {excerpt}" if excerpt else "")
    assert cells(line(details))["REASON"] == shown


def test_an_exception_of_a_shell_line_does_not_hide_which_line_failed() -> None:
    details = JobDetails(
        reason="FinishCommandFailed", message="the finish command exited with code 1: KeyError: 'a'"
    )
    assert cells(line(details))["REASON"] == "FinishCommandFailed"


def test_a_job_that_runs_has_run_until_now() -> None:
    shown = cells(line(JobDetails(reason="Started", started_at=NOW), "Running"))
    assert (shown["REASON"], shown["DURATION"]) == ("", "2 m 00 s")


@pytest.mark.parametrize("reason", ["Submitted", "Completed", "Starting"])
def test_a_reason_that_repeats_the_state_is_left_out(reason: str) -> None:
    assert cells(line(JobDetails(reason=reason)))["REASON"] == ""


def test_a_job_that_waits_for_its_quota_says_so() -> None:
    shown = cells(line(JobDetails(reason="QuotaExceeded"), "Queued"))
    assert (shown["REASON"], shown["DURATION"]) == ("QuotaExceeded", "")


def test_a_server_that_sends_no_details() -> None:
    shown = cells(line(None, deleting=True), wide=True)
    assert (shown["STATE"], shown["REASON"], shown["DURATION"], shown["EXIT CODE"]) == (
        "Deleting",
        "",
        "",
        "",
    )

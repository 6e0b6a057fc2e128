"""Gangs whose supervisors end before they have begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.spawner.reaper import FailedStarts

KEY, OTHER = GangKey("a" * 32, 1), GangKey("b" * 32, 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "engine")
    ledger.create()
    return ledger


def test_a_gang_that_no_supervisor_can_begin_is_over_after_a_few_tries(ledger: Ledger) -> None:
    """It was tried fifty times a second for ever, and its job stayed in ``Starting``."""
    failed = FailedStarts(ledger, most=3)
    for _ in range(2):
        failed.note(KEY, failed=True)
        failed.note(OTHER, failed=True)
        assert ledger.observe(KEY) is None
    failed.note(KEY, failed=True)
    seen = ledger.observe(KEY)
    assert seen is not None
    assert (seen.state, seen.reason) == (GangState.EXITED, Reason.START_FAILED)
    assert "spawner's log" in seen.message
    assert ledger.observe(OTHER) is None


def test_a_gang_that_was_claimed_meanwhile_is_not_given_up(ledger: Ledger) -> None:
    failed = FailedStarts(ledger, most=2)
    failed.note(KEY, failed=True)
    assert ledger.claim(KEY)
    for _ in range(3):
        failed.note(KEY, failed=True)
    seen = ledger.observe(KEY)
    assert seen is not None
    assert seen.state is GangState.STAGING


def test_failures_before_a_good_end_do_not_count(ledger: Ledger) -> None:
    failed = FailedStarts(ledger, most=2)
    for ended_badly in (True, False, True):
        failed.note(KEY, failed=ended_badly)
    assert ledger.observe(KEY) is None


def test_on_a_full_disk_the_next_failure_tries_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = FailedStarts(ledger, most=1)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "claim", full)
        failed.note(KEY, failed=True)
    assert ledger.observe(KEY) is None
    failed.note(KEY, failed=True)
    seen = ledger.observe(KEY)
    assert seen is not None
    assert seen.state is GangState.EXITED

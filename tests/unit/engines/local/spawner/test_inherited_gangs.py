"""What a spawner does after the gangs of one that was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.spawner.reaper import InheritedGangs

KEY = GangKey("a" * 32, 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A gang whose supervisor was killed while it staged."""
    ledger = Ledger(tmp_path / "engine")
    ledger.create()
    supervisor = os.fork()
    if supervisor == 0:
        os._exit(0 if ledger.claim(KEY) else 1)
    assert os.waitpid(supervisor, 0)[1] == 0
    (ledger.attempt_folder(KEY) / "venv" / "lib").mkdir(parents=True)
    return ledger


def test_what_the_spawner_had_begun_to_remove_when_it_was_killed_is_removed(
    ledger: Ledger,
) -> None:
    """It was left for as long as the job was kept: the gang was told to be over before."""
    seen = ledger.observe(KEY)
    assert seen is not None
    assert seen.state is GangState.LOST
    ledger.report(seen)
    InheritedGangs(ledger)
    assert not (ledger.attempt_folder(KEY) / "venv").exists()


def test_nothing_is_removed_while_processes_may_be_left(ledger: Ledger) -> None:
    InheritedGangs(ledger)
    assert (ledger.attempt_folder(KEY) / "venv").exists()

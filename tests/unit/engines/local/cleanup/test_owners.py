"""Whose a thing of the machine is, and whether that engine is gone."""

from __future__ import annotations

import os
from pathlib import Path

from cloud_ml.engines.local.cleanup.owners import owner_of
from cloud_ml.engines.local.network.machine import in_child

_NOBODY = 65534


def test_an_engine_is_gone_with_its_folder(tmp_path: Path) -> None:
    owner = owner_of(str(tmp_path / "engine"))
    assert owner.gone
    (tmp_path / "engine").mkdir()
    assert not owner.gone


def test_an_engine_below_a_folder_that_is_closed_counts_as_there(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    owner = owner_of(str(closed / "engine"))
    closed.chmod(0)

    def look() -> None:
        if os.geteuid() == 0:
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        assert not owner.gone

    try:
        in_child(look)
    finally:
        closed.chmod(0o700)

"""``RUNTIMES_SLICE=N`` runs a third of these tests, others with each of three numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SLICE = os.environ.get("RUNTIMES_SLICE", "")
SLICES = 3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what other numbers run; tests of other folders stay."""
    if not SLICE:
        return
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    others = {item for place, item in enumerate(ours) if place % SLICES != int(SLICE) % SLICES}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]

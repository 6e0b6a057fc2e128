"""``RUNTIMES_SLICE=N`` runs an eighth of these tests and of those of foreign clients that take an
installation, others with each of eight numbers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SLICE = os.environ.get("RUNTIMES_SLICE", "")
SLICES = 8
_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "compat")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what other numbers run; tests of other folders stay."""
    if not SLICE:
        return
    ours = [item for item in items if any(map(item.path.is_relative_to, _FOLDERS))]
    others = {item for place, item in enumerate(ours) if place % SLICES != int(SLICE) % SLICES}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]

"""Frameworks are imported one at a time, whichever threads load models."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_ml.serving.runtimes.imports import import_framework

MEETING = """
import threading
_both = threading.Barrier(2)
AT_ONCE = []

def come(name):
    try:
        _both.wait(0.3)
        AT_ONCE.append(name)
    except threading.BrokenBarrierError:
        pass
"""


def test_two_frameworks_that_import_each_other_are_imported_by_two_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meeting.py").write_text(MEETING)
    for name, other in (("half_one", "half_two"), ("half_two", "half_one")):
        (tmp_path / f"{name}.py").write_text(
            f"import meeting\nmeeting.come('{name}')\nimport {other}\n{other}.__file__\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(import_framework, ("half_one", "half_two")))
    assert [each.__name__ for each in made] == ["half_one", "half_two"]
    assert sys.modules["meeting"].AT_ONCE == []
    for name in ("half_one", "half_two", "meeting"):
        del sys.modules[name]

"""A build with setuptools is cheaper, and its code sees no difference."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cloud_ml.environments.builder.setuptools_speedups import EntryPointReader

GROUP = "cloud_ml.test"
UNUSED = """
import sys
from cloud_ml.environments.builder import setuptools_speedups
setuptools_speedups.install()
import urllib.request
assert "http.client" not in sys.modules
from urllib.request import {name}
assert "http.client" in sys.modules
assert urllib.request.{name} is {name}
"""


def distribution(folder: Path, name: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:main\n")


def test_entry_points_are_read_again_when_a_distribution_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = []

    def read() -> object:
        readings.append(1)
        return metadata.entry_points()

    def names() -> set[str]:
        return {each.name for each in reader(group=GROUP)}

    reader = EntryPointReader(read)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    distribution(tmp_path, "first")
    assert names() == {"first"}
    assert names() == {"first"}
    assert len(readings) == 1
    distribution(tmp_path, "second")
    assert names() == {"first", "second"}
    distribution(tmp_path / "other", "third")
    sys.path.insert(0, str(tmp_path / "other"))
    assert names() == {"first", "second", "third"}
    assert [each.value for each in reader(group=GROUP, name="third")] == ["third:main"]


@pytest.mark.parametrize("name", ["urlopen", "Request"])
def test_a_module_that_a_build_uses_is_imported_then(name: str) -> None:
    subprocess.run([sys.executable, "-c", UNUSED.format(name=name)], check=True)

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from cloud_ml.environments import compat_bytecode


def test_what_an_installer_has_not_compiled_is_compiled_once(tmp_path: Path) -> None:
    source = Path(compat_bytecode.__file__).with_name("compat")
    copy = tmp_path / "compat"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    compat_bytecode.compile_modules(copy)
    modules = list(copy.rglob("*.py"))
    compiled = [Path(importlib.util.cache_from_source(str(one))) for one in modules]
    assert modules
    assert all(one.is_file() for one in compiled)
    before = [one.stat().st_mtime_ns for one in compiled]
    compat_bytecode.compile_modules(copy)
    assert [one.stat().st_mtime_ns for one in compiled] == before


def test_a_folder_in_which_nothing_can_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    (tmp_path / "__pycache__").write_text("a file where the folder would be")
    compat_bytecode.compile_modules(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["__pycache__", "module.py"]

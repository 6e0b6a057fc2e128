"""Examples in docstrings: what they import is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import cloud_ml

SOURCE = Path(cloud_ml.__file__).parent
_IMPORT = re.compile(r"^\s+from (cloud_ml[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def _imports() -> list[tuple[str, str, str]]:
    found = []
    for path in [
        SOURCE / "client.py",
        *sorted((SOURCE / "sdk").rglob("*.py")),
        *sorted((SOURCE / "aio").rglob("*.py")),
    ]:
        tree = ast.parse(path.read_text("utf-8"))
        nodes = [
            node
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        ]
        texts = [ast.get_docstring(node, clean=False) or "" for node in nodes]
        found += [
            (path.relative_to(SOURCE).as_posix(), module, name.strip())
            for text in texts
            for module, names in _IMPORT.findall(text)
            for name in names.split(",")
        ]
    return found


@pytest.mark.parametrize(("path", "module", "name"), _imports())
def test_an_example_imports_what_is_there(path: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name), path


def test_the_client_begins_with_an_example() -> None:
    assert ("client.py", "cloud_ml.client", "CloudMlClient") in _imports()

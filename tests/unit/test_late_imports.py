"""Spawner, supervisors and gateway outlive an upgrade that replaces or moves the files below them.

So they import all modules of ours when they start, and none when a function runs.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SPAWNER, GATEWAY = "cloud_ml.engines.local.spawner.main", "cloud_ml.gateway.main"
_LIST = """
import importlib, sys
importlib.import_module(sys.argv[1])
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "cloud_ml":
        print(name, module.__file__)
"""


def loaded(program: str) -> dict[str, Path]:
    """The modules of ours that a program has when it starts, with their files."""
    command = [sys.executable, "-c", _LIST, program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    return {name: Path(path) for name, path in lines}


def late_imports(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a function imports when it is called."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("cloud_ml"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cloud_ml"):
            yield node.module or ""


@pytest.mark.parametrize(
    ("program", "some"),
    [
        (SPAWNER, {"cloud_ml.engines.local.supervisor.supervisor", "cloud_ml.environments.build"}),
        (GATEWAY, {"cloud_ml.gateway.calls", "cloud_ml.net.http2.connection"}),
    ],
)
def test_a_running_program_imports_no_module_of_ours(program: str, some: set[str]) -> None:
    modules = loaded(program)
    assert some <= modules.keys()
    late = {name: [*late_imports(ast.parse(path.read_text()))] for name, path in modules.items()}
    assert {name: found for name, found in late.items() if found} == {}


def test_an_import_in_a_function_is_found() -> None:
    code = "import os\ndef f():\n    import json\n    from cloud_ml.timers import Timers\n"
    assert [*late_imports(ast.parse(code))] == ["cloud_ml.timers"]

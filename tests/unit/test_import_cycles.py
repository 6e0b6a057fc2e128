"""No module needs itself: neither when it is imported, nor when one of its functions runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import cloud_ml

PACKAGE = Path(cloud_ml.__file__).parent


def modules() -> dict[str, Path]:
    """Every module of ours by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of each import, those in functions included and those for types left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        else:
            yield from imported(node)


def test_there_is_no_cycle() -> None:
    known = modules()
    needs: dict[str, set[str]] = {}
    for name, path in known.items():
        pairs = imported(ast.parse(path.read_text("utf-8")))
        targets = {
            f"{module}.{each}" if f"{module}.{each}" in known else module for module, each in pairs
        }
        needs[name] = (targets & known.keys()) - {name}
    assert len(needs) > 500
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None

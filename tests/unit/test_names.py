"""Names are the field's (decision 31): none of those that ``names.toml`` lists comes back."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cloud_ml"
NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text())
_DEFINITIONS = {"module", "class", "function"}
_EVERYWHERE = {*_DEFINITIONS, "argument", "field", "attribute"}
KINDS = {
    "variables": {*_EVERYWHERE, "variable"},
    "everywhere": _EVERYWHERE,
    "definitions": _DEFINITIONS,
    "rooms": {"module", "class"},
}
"""Table of ``names.toml`` → kinds of names that it is about."""


class Found(NamedTuple):
    """A name; ``path`` is below the folder that is looked at."""

    path: str
    line: int
    kind: str
    name: str


def plain(name: str) -> str:
    """``_TwoWords`` and ``two_words_`` are ``two_words``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower()


def names_of(path: str, text: str) -> Iterator[Found]:
    """Everything that a module names: itself, its folders, and what it defines."""
    for part in Path(path).with_suffix("").parts:
        yield Found(path, 1, "module", part)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef(name=name):
                yield Found(path, node.lineno, "class", name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Found(path, node.lineno, "function", name)
            case ast.arg(arg=name):
                yield Found(path, node.lineno, "argument", name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield Found(path, node.lineno, "field", name)
            case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                yield Found(path, node.lineno, "attribute", name)
            case ast.alias(asname=str(name)):
                yield Found(path, node.lineno, "variable", name)
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield Found(path, node.lineno, "variable", name)


def replacements(one: Found, tables: Collection[str] = KINDS) -> Iterator[str]:
    """What to write instead of a name, where it is in one of the tables."""
    for table in tables:
        instead = NAMES[table].get(plain(one.name))
        if one.kind in KINDS[table] and instead is not None:
            yield instead


def listed(folder: Path, tables: Collection[str] = KINDS) -> dict[str, str]:
    """Names of the tables that are below the folder, by ``path: name``, and what to write."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder).as_posix()
        for one in names_of(path, file.read_text()):
            for instead in replacements(one, tables):
                found[f"{path}: {one.name}"] = f"line {one.line}, a {one.kind}: write {instead}"
    return found


def test_no_name_of_the_table_is_in_the_package_but_for_exceptions_that_are_needed() -> None:
    found = listed(PACKAGE)
    lines = [
        f"src/cloud_ml/{name} ({why})"
        for name, why in found.items()
        if name not in NAMES["exceptions"]
    ]
    assert not lines, "names that decision 31 replaced:\n" + "\n".join(lines)
    assert set(NAMES["exceptions"]) <= set(found)


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "tools", "docs/_ext", "examples"])
def test_no_variable_beside_the_package_has_such_a_name(folder: str) -> None:
    found = listed(ROOT / folder, ["variables"])
    lines = [f"{folder}/{name} ({why})" for name, why in found.items()]
    assert not lines, "names that decision 31 replaced:\n" + "\n".join(lines)


def test_each_exception_has_a_reason() -> None:
    assert all(NAMES["exceptions"].values())


def test_names_are_found_wherever_they_are_given() -> None:
    text = (
        "class Crew:\n    zygotes: int = 0\n"
        "    def told(self, errand, told):\n        self._keeper = errand\n"
    )
    found = [
        (one.kind, one.name) for one in names_of("local/doors.py", text) if any(replacements(one))
    ]
    assert found == [
        ("module", "doors"), ("class", "Crew"), ("field", "zygotes"), ("function", "told"),
        ("argument", "errand"), ("argument", "told"), ("attribute", "_keeper"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "said = 1", "said, other = 1, 2", "said: int = 1", "_SAID = 1", "for said in (): ...",
        "with open('x') as said: ...", "[said for said in ()]", "print(said := 1)",
        "import json as said", "try: ...\nexcept OSError as said: ...", "lambda said: 1",
        "def f(*, said): ...", "match 1:\n    case said: ...", "match []:\n    case [*said]: ...",
        "class A:\n    def f(self):\n        self._said = 1", "class Said: ...", "def said(): ...",
    ],
)  # fmt: skip
def test_a_variable_has_no_such_name_wherever_it_gets_it(text: str) -> None:
    lines = [line for one in names_of("local.py", text) for line in replacements(one)]
    assert set(lines) == {NAMES["variables"]["said"]}, text


def test_a_name_that_is_only_read_belongs_to_somebody_else() -> None:
    text = "def f(view):\n    return view.said, view.wanted, Service(wanted=view.wanted)"
    assert not [one for one in names_of("local.py", text) if any(replacements(one))]

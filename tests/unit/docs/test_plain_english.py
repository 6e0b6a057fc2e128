"""What users read is plain English: phrases that readers stumbled over do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src/cloud_ml"
PHRASES = (
    r"its log, its findings",
    r"Say what this machine offers",
    r"whom the server takes",
    r"changed where options say",
    r"wherever they stand",
    r"go behind `?--",
    r"where it leaves no doubt",
    r"Mend what",
    r"if a package brings it",
    r"do not tell what they take",
    r"wants a token",
    r"\bis no (valid )?JSON\b",
    r"\bis a owner\b",
    r"\bwho may not manage\b",
    r"Fence jobs in",
    r"What is not good yet",
    r"Replicas are made anew",
    r"no old one goes before",
    r"asked twice happens once",
)
"""Regular expressions. Each has a plain phrase that says the same."""


def pages() -> list[Path]:
    generated = ROOT / "docs/_build"
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if not page.is_relative_to(generated))


def texts(source: str) -> Iterator[str]:
    """Strings of a module that may reach users: not its docstrings, except of commands."""
    tree = ast.parse(source)
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_page_has_a_phrase_that_readers_stumbled_over(phrase: str) -> None:
    found = [page.name for page in pages() if re.search(phrase, page.read_text(), re.IGNORECASE)]
    assert not found


def test_no_message_and_no_help_has_one() -> None:
    found: list[str] = []
    pattern = re.compile("|".join(PHRASES), re.IGNORECASE)
    for path in sorted(SOURCES.rglob("*.py")):
        source = path.read_text()
        if not pattern.search(source):
            continue
        help_texts = [source] if path.is_relative_to(SOURCES / "cli") else texts(source)
        found += [f"{path.name}: {text[:80]}" for text in help_texts if pattern.search(text)]
    assert not found

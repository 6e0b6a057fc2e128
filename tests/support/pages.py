"""The pages of the project as data: their text, links, and blocks of code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
    ]
)

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text[:40]!r}"


def blocks(*languages: str) -> list[Block]:
    """Every block in one of the languages."""
    return [
        Block(page, found[1], found[2])
        for page in PAGES
        for found in _BLOCK.finditer(page.read_text("utf-8"))
        if found[1] in languages
    ]


def commands(program: str) -> list[tuple[Path, list[str]]]:
    """The arguments of every call of ``program`` that a page has the reader type."""
    return [
        (block.page, words[1:])
        for block in blocks("console")
        for line in re.sub(r"\\\n>? *", "", block.text).splitlines()
        if line.startswith("$ ") and (words := shlex.split(line[2:], comments=True))[0] == program
    ]


def links(page: Path) -> Iterator[str]:
    """Targets of links and pictures outside of code."""
    return (found[1] for found in _LINK.finditer(_ANY_BLOCK.sub("", page.read_text("utf-8"))))


def spans(page: Path) -> Iterator[str]:
    """Code spans outside of blocks."""
    return (found[1] for found in _SPAN.finditer(_ANY_BLOCK.sub("", page.read_text("utf-8"))))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may name, by GitHub's rule."""
    headings = _HEADING.findall(_ANY_BLOCK.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

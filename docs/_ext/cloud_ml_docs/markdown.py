"""Small pieces of Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may not hold line breaks."""
    lines = [header, ["---"] * len(header), *rows]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )
        + "\n"
    )


def code(text: str) -> str:
    """The text as a code span, or nothing for no text."""
    return f"`{text}`" if text else ""


def prose(text: str | None) -> str:
    """A docstring as one line of Markdown: reStructuredText's double backquotes become single
    ones.
    """
    return " ".join(inspect.cleandoc(text or "").split()).replace("``", "`")


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring as one line of Markdown."""
    return prose(inspect.cleandoc(text or "").partition("\n\n")[0])

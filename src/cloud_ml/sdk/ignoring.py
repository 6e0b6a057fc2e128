"""Which files of a folder stay behind when it is packed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cloud_ml.errors import InvalidRequest

IGNORE_FILE = ".cloudmlignore"
"""In the folder's root: a pattern on each line, as in ``.gitignore`` but without ``!``."""

DEFAULT_PATTERNS = (
    "/build/", "/dist/", "*.egg-info/", "*.py[co]", ".#*", ".DS_Store", ".git", ".hg", ".ipynb_checkpoints/",
    ".mypy_cache/", ".nox/", ".pytest_cache/", ".ruff_cache/", ".svn", ".tox/", ".venv", "__pycache__/",
    "node_modules/",
)  # fmt: skip
"""Left behind always: history, caches, environments, and what builds make."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    folders_only: bool


class IgnoreRules:
    """Patterns, compiled.

    ``*`` and ``?`` match within a name, ``**`` across folders. A pattern with a slash in front or in
    the middle is anchored at the root, any other matches at every level; one that ends in a slash
    matches folders only. What is in an ignored folder is ignored.

    Raises:
        InvalidRequest: A pattern begins with ``!``.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compile(line) for pattern in patterns if (line := pattern.strip()) and line[0] != "#"]

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` (relative to the root, with '/') stays behind."""
        return any(
            pattern.regex.fullmatch(path) is not None
            for pattern in self._patterns
            if folder or not pattern.folders_only
        )


def _compile(pattern: str) -> _Pattern:
    if pattern.startswith("!"):
        raise InvalidRequest(
            f"{IGNORE_FILE} has the pattern {pattern!r}; allowed are patterns without '!'",
            field=IGNORE_FILE,
            value=pattern,
            allowed="patterns of what to leave out",
        )
    body = pattern.rstrip("/")
    anchored = "/" in body
    text = "".join(_TRANSLATION.get(part) or _literal(part) for part in _PARTS.findall(body.lstrip("/")))
    return _Pattern(re.compile(("" if anchored else "(?:.*/)?") + text, re.DOTALL), pattern.endswith("/"))


_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]/]+\]|.", re.DOTALL)
_TRANSLATION = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _literal(part: str) -> str:
    if len(part) > 1:  # a set of characters
        inside = part[1:-1]
        negated = inside[0] in "!^" and len(inside) > 1
        body = (inside[1:] if negated else inside).replace("\\", r"\\").replace("[", r"\[")
        return f"[{'^' if negated else ''}{body}]"
    return re.escape(part)

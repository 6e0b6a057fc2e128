"""Which files of a folder stay behind when it is packed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.wildcards import Matcher, matcher

_MOST_PATTERNS, _LONGEST_PATTERN = 100, 256
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
    matches: Matcher
    folders_only: bool


class IgnoreRules:
    """Patterns, compiled.

    ``*`` and ``?`` match within a name, ``**`` across folders. A pattern with a slash in front or in
    the middle is anchored at the root, any other matches at every level; one that ends in a slash
    matches folders only. What is in an ignored folder is ignored.

    Raises:
        InvalidRequest: A pattern begins with ``!``, or cannot be read.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compile(line) for pattern in patterns if (line := pattern.strip()) and line[0] != "#"]

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` (relative to the root, with '/') stays behind."""
        return any(pattern.matches(path) for pattern in self._patterns if folder or not pattern.folders_only)


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
    try:
        matches = matcher(("" if anchored else "**/") + body.lstrip("/"), whole_folders=True)
    except ValueError as error:
        raise InvalidRequest(
            f"{IGNORE_FILE} has the pattern {pattern!r}, which cannot be read: {error}",
            field=IGNORE_FILE,
            value=pattern,
            allowed="*, **, ? and sets such as [a-z]",
        ) from None
    return _Pattern(matches, pattern.endswith("/"))


def check_patterns(field: str, patterns: object) -> None:
    """Refuse what is no list of patterns of a user's.

    Raises:
        InvalidRequest: It names the field, the value and what is allowed.
    """
    allowed = f"a list of at most {_MOST_PATTERNS} patterns such as '*.pt' or 'plots/', without '!'"
    if not isinstance(patterns, list) or len(patterns) > _MOST_PATTERNS:
        raise refuse(field, patterns, allowed)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern.strip() or len(pattern) > _LONGEST_PATTERN:
            raise refuse(field, pattern, allowed)
        try:
            IgnoreRules([pattern])
        except InvalidRequest:
            raise refuse(field, pattern, allowed) from None

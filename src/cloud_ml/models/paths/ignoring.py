"""Which files of a folder stay behind when it is packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.paths.wildcards import Matcher, matcher

_MOST_PATTERNS, _LONGEST_PATTERN = 100, 256
_FEW_WILDCARDS = 2
IGNORE_FILE = ".cloudmlignore"
"""In the folder's root: a pattern on each line, as in ``.gitignore`` but without ``!``."""

DEFAULT_PATTERNS = (
    "/build/",
    "/dist/",
    "*.egg-info/",
    "*.py[co]",
    ".#*",
    ".DS_Store",
    ".git",
    ".hg",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".nox/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".svn",
    ".tox/",
    ".venv",
    "__pycache__/",
    "node_modules/",
)
"""Left behind always: history, caches, environments, and what builds make."""
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""A folder that holds one of these is an environment, whatever its name: it is neither sent nor
an output.
"""
DATA_FOLDER_MARKS = frozenset({"server.lock", "engine"})
"""A folder that holds both is the data folder of a server, with its keys and everybody's data."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    matches: Matcher
    folders_only: bool
    names_only: bool
    """It says nothing of the folders above, so that it is compared with the last name of a path."""
    slow: bool
    """It may take a millisecond."""


class IgnoreRules:
    """Patterns, compiled.

    ``*`` and ``?`` match within a name, ``**`` across folders. A pattern with a slash in front or
    in the middle is anchored at the root, any other matches at every level; one that ends in a
    slash matches folders only. What is in an ignored folder is ignored.

    Args:
        patterns: As they were written.
        checkpoint: Called before each pattern that may take long.

    Raises:
        InvalidRequest: A pattern begins with ``!``, or cannot be read.
    """

    def __init__(
        self, patterns: Iterable[str], checkpoint: Callable[[], None] | None = None
    ) -> None:
        self._checkpoint = checkpoint
        self._patterns = [
            _compile(line) for pattern in patterns if (line := pattern.strip()) and line[0] != "#"
        ]

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` (relative to the root, with '/') stays behind."""
        name = path.rpartition("/")[2]
        for pattern in self._patterns:
            if pattern.folders_only and not folder:
                continue
            if pattern.slow and self._checkpoint is not None:
                self._checkpoint()
            if pattern.matches(name if pattern.names_only else path):
                return True
        return False


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
    names_only = not anchored and "**" not in body
    try:
        matches = matcher(
            ("" if anchored or names_only else "**/") + body.lstrip("/"), whole_folders=True
        )
    except ValueError as error:
        raise InvalidRequest(
            f"{IGNORE_FILE} has the pattern {pattern!r}, which cannot be read: {error}",
            field=IGNORE_FILE,
            value=pattern,
            allowed="*, **, ? and sets such as [a-z]",
        ) from None
    slow = not names_only or body.count("*") > _FEW_WILDCARDS
    return _Pattern(matches, pattern.endswith("/"), names_only, slow)


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

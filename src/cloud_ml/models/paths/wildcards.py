"""Wildcards in paths: ``*`` and ``?`` within a name, ``**`` across folders, sets such as ``[a-z]``
and ``[!a-z]``.

A pattern of a few wildcards becomes a regular expression. With many, or with two that cross
folders, those try each way to share a text out, for minutes; such a pattern goes through the text
once, with all the places at once where its next part may begin.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]/][^\]/]*\]|[^*?\[]+|\[", re.DOTALL)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
_SIMPLE = (["**/", "*"], ["*", "*"])
"""Two wildcards whose regular expression takes no more than the length of the text times that of
a name.
"""

Matcher = Callable[[str], bool]
_Step = Callable[[str, set[int]], set[int]]


def matcher(pattern: str, *, whole_folders: bool) -> Matcher:
    """Whether a text is what ``pattern`` means.

    Args:
        pattern: As it was written.
        whole_folders: ``**/`` stands for no folder, too.

    Raises:
        ValueError: It cannot be read; the message says why.
    """
    parts: list[str] = []
    for part in _PARTS.findall(pattern):
        split = ["**", "/"] if part == "**/" and not whole_folders else [part]
        # A wildcard twice in a row says no more than once.
        parts += [one for one in split if one not in _WILD or not parts or parts[-1] != one]
    try:
        regex = re.compile(
            "".join(_WILD.get(part) or _translate_fixed(part) for part in parts), re.DOTALL
        )
    except re.error as error:
        raise ValueError(error.msg) from None
    wild = [part for part in parts if part in _WILD]
    if len(wild) < 2 or wild in _SIMPLE:
        return lambda text: regex.fullmatch(text) is not None
    steps = [_step(part) for part in parts]

    def matches(text: str) -> bool:
        places = {0}
        for step in steps:
            places = step(text, places)
            if not places:
                return False
        return len(text) in places

    return matches


def _translate_fixed(part: str) -> str:
    """The regular expression of a part that stands for as many characters as it says."""
    if part == "?":
        return "[^/]"
    if len(part) < 3 or part[0] != "[":
        return re.escape(part)
    negated = part[1] in "!^" and len(part) > 3
    inside = re.sub(r"([\\\[&|~^])", r"\\\1", part[2 if negated else 1 : -1])
    return f"(?!/)[{'^' if negated else ''}{inside}]"


def _step(part: str) -> _Step:
    """From the places where a part may begin to those where it may end."""
    if part == "**":
        return lambda text, places: set(range(min(places), len(text) + 1))
    if part == "**/":
        return lambda text, places: (
            places | {place + 1 for place in range(min(places), len(text)) if text[place] == "/"}
        )
    if part == "*":
        return _within_names
    regex = re.compile(_translate_fixed(part), re.DOTALL)
    return lambda text, places: {
        found.end() for place in places if (found := regex.match(text, place))
    }


def _within_names(text: str, places: set[int]) -> set[int]:
    found: set[int] = set()
    for place in places:
        while place not in found:
            found.add(place)
            if place < len(text) and text[place] != "/":
                place += 1  # noqa: PLW2901 - on to where the name ends, or where another has been
    return found

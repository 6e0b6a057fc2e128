"""What of Python 2 a source uses: read from its code without strings and comments, in linear
time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

NAMES = {
    "basestring": "str",
    "raw_input": "input",
    "unichr": "chr",
    "unicode": "str",
    "xrange": "range",
}
"""Functions of Python 2 and their names in Python 3."""

MODULES = {
    "ConfigParser": "configparser",
    "cPickle": "pickle",
    "cStringIO": "io",
    "HTMLParser": "html.parser",
    "httplib": "http.client",
    "Queue": "queue",
    "StringIO": "io",
    "Tkinter": "tkinter",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
    "__builtin__": "builtins",
    "thread": "_thread",
    "commands": "subprocess",
}
"""Modules of Python 2 and their names in Python 3."""

MOST = 200
"""Findings of one source."""
_SYNTAX = {
    "print statement": r"(?:^|[;:])[ \t]*print[ \t]+(?!(?:if|else|and|or|in|is|not|for)\b)[\w\"`>]",
    "exec statement": r"(?:^|[;:])[ \t]*exec[ \t]+\"\"",
    '"except Error, name"': r"^[ \t]*except[ \t]+[\w.]+[ \t]*,[ \t]*\w+[ \t]*:",
    '"raise Error, text"': r"^[ \t]*raise[ \t]+[\w.]+[ \t]*,",
    "backquotes": r"`",
    "operator <>": r"<>",
    "octal number without 0o": r"(?<![\w.])0(?=[0-7]*[1-7])[0-7]+(?![\w.])",
    "number with L": r"(?<![\w.])\d+[lL](?!\w)",
    "iteritems and its like": r"(?<!six)\.(?:has_key|iteritems|itervalues|iterkeys)[ \t]*\(",
}
_PATTERNS = {what: re.compile(pattern, re.MULTILINE) for what, pattern in _SYNTAX.items()}
_USED = re.compile(rf"(?<![\w.])({'|'.join(NAMES)})(?!\w)")
_BOUND = re.compile(rf"(?<![\w.])({'|'.join(NAMES)})[ \t]*=(?!=)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_IMPORTED = re.compile(rf"^(?:import|from)[ \t]+({'|'.join(MODULES)})(?![\w.])", re.MULTILINE)


def find(code: str, line_ends: Sequence[int]) -> list[tuple[str, int]]:
    """What is of Python 2, with its line, in the order of lines.

    A name that the source defines or imports itself is left out, and so is an import that is not at
    the beginning of a line: code for both versions guards them.

    Args:
        code: A source without its strings and comments.
        line_ends: Where its lines end.
    """
    found = [(what, bisect_left(line_ends, at) + 1) for what, at in _positions(code)]
    return sorted(found, key=lambda one: one[1])[:MOST]


def _positions(code: str) -> Iterator[tuple[str, int]]:
    for what, pattern in _PATTERNS.items():
        for count, match in enumerate(pattern.finditer(code)):
            if count >= MOST:
                break
            yield what, match.end() - 1
    for count, match in enumerate(_IMPORTED.finditer(code)):
        if count >= MOST:
            break
        yield f"import of {match[1]}", match.start(1)
    own = _own_names(code)
    for count, match in enumerate(_USED.finditer(code)):
        if count >= MOST:
            break
        if match[1] not in own:
            yield match[1], match.start(1)


def _own_names(code: str) -> set[str]:
    """Names of Python 2 that the source binds: by an assignment, or in a line with ``import`` or
    ``def``.
    """
    own = {match[1] for match in _BOUND.finditer(code)}
    for line in code.splitlines():
        if "import" in line or "def " in line:
            own.update(word for word in _WORD.findall(line) if word in NAMES)
    return own

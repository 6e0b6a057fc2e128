"""What a Python source imports and which names of TensorFlow it uses, without parsing it.

A parser needs a hundred times the size of the source, and its stack grows with what is nested. This
reads any bytes in linear time and a few times their size: strings and comments are blanked out
first, and patterns then look at the code that is left. No pattern repeats a group or has two
neighbouring repeats that match the same characters, so none backtracks and none needs a stack.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from cloud_ml.environments.trainers import python2

_PREFIX = "(?:[rRbBuUfF]{1,2})?"
_OPENER = re.compile(rf"#|(?<![\w]){_PREFIX}(?:'''|\"\"\"|'|\")|'''|\"\"\"|'|\"|\\\r?\n")
_ENDS = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""')}
_ENDS |= {quote: re.compile(rf"\\.|{quote}|\n", re.DOTALL) for quote in ("'", '"')}
_LINE_END = re.compile(r"\n")
# A line feed within a string or after a backslash becomes a vertical tab: it still counts as a
# line, but does not end the statement.
_EMPTY, _JOINED = '""', "\x0b"
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*import[ \t]+([^\n;]+)", re.MULTILINE)
_FROM = re.compile(
    r"(?:^|[;:])[ \t]*from[ \t]+([A-Za-z_][\w.]*)[ \t\x0b]+import[ \t\x0b]*(\([^()]*|[^\n;(]+)",
    re.MULTILINE,
)
_DOTTED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.([\w.]+)")
_CHAIN, _NAME, _IMPORTS, _USES = 8, 200, 1000, 2000


@dataclass
class SourceScan:
    """Top-level modules that are imported, and dotted names of TensorFlow that are used, with their
    lines.

    ``first`` are those names whose import stands at the beginning of a line: nothing guards it.
    ``python_2`` is what the source uses of Python 2.
    """

    imports: set[str] = field(default_factory=set)
    uses: list[tuple[str, int]] = field(default_factory=list)
    first: list[tuple[str, int]] = field(default_factory=list)
    python_2: list[tuple[str, int]] = field(default_factory=list)


def scan(source: bytes) -> SourceScan:
    """Read ``source``, which may be anything. At most 1,000 imports and 2,000 uses are kept."""
    code = _code_of(source.decode("utf-8-sig", "replace"))
    lines = [match.start() for match in re.finditer("[\n\x0b]", code)]
    found = SourceScan(python_2=python2.find(code, lines))
    aliases: set[str] = set()
    for match in _IMPORT.finditer(code):
        line = bisect_left(lines, match.start(1)) + 1
        for name, alias in _split_names(match[1]):
            _add_import(found, aliases, name, alias, line)
            top, _, rest = name.partition(".")
            if match[0].startswith("import") and top == "tensorflow" and rest:
                _add_first(found, rest, line)
    for match in _FROM.finditer(code):
        module, line = match[1], bisect_left(lines, match.start(1)) + 1
        top, _, rest = module.partition(".")
        _add_name(found, top)
        if top == "tensorflow":
            names = [
                f"{rest}.{name}" if rest else name for name, _ in _split_names(match[2].strip("()"))
            ]
            _add_uses(found, names, line)
            if match[0].startswith("from"):
                for name in names:
                    _add_first(found, name, line)
    if aliases:
        for match in _DOTTED.finditer(code):
            if match[1] in aliases:
                _add_uses(found, _prefixes(match[2]), bisect_left(lines, match.start(1)) + 1)
    found.uses.sort(key=lambda use: use[1])
    return found


def _code_of(text: str) -> str:
    """``text`` with each string empty, without comments, and with the same number of lines."""
    parts: list[str] = []
    at = 0
    while opener := _OPENER.search(text, at):
        parts.append(text[at : opener.start()])
        mark = opener[0]
        if mark[0] == "\\":
            parts.append(_JOINED)
            at = opener.end()
        elif mark == "#":
            at = _line_end(text, opener.end())
        else:
            at = _string_end(text, opener.end(), mark.lstrip("rRbBuUfF"))
            parts.append(_EMPTY + _JOINED * text.count("\n", opener.end(), at))
    parts.append(text[at:])
    return "".join(parts)


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _string_end(text: str, at: int, quote: str) -> int:
    """Where the string ends: behind its quote, or before the end of the line for one that is not
    closed.
    """
    for match in _ENDS[quote].finditer(text, at):
        if match[0] == quote:
            return match.end()
        if match[0] == "\n":
            return match.start()
    return len(text)


def _split_names(text: str) -> Iterator[tuple[str, str]]:
    """Names and their aliases of ``a.b as c, d``."""
    for part in text.replace(_JOINED, " ").split(","):
        words = part[:_NAME].split()
        if words and words[0].replace(".", "").isidentifier():
            yield words[0], words[2] if len(words) == 3 and words[1] == "as" else ""


def _add_import(found: SourceScan, aliases: set[str], name: str, alias: str, line: int) -> None:
    top, _, rest = name.partition(".")
    _add_name(found, top)
    if top != "tensorflow":
        return
    if not rest or not alias:
        aliases.add(alias or top)
    if rest:
        _add_uses(found, [rest], line)


def _add_name(found: SourceScan, name: str) -> None:
    if len(found.imports) < _IMPORTS:
        found.imports.add(name[:_NAME])


def _add_uses(found: SourceScan, names: Iterator[str] | list[str], line: int) -> None:
    for name in names:
        if len(found.uses) < _USES:
            found.uses.append((name[:_NAME], line))


def _add_first(found: SourceScan, name: str, line: int) -> None:
    if len(found.first) < _IMPORTS:
        found.first.append((name[:_NAME], line))


def _prefixes(chain: str) -> Iterator[str]:
    """``train``, ``train.Saver`` for ``train.Saver``."""
    steps = chain[:_NAME].split(".")[:_CHAIN]
    for count in range(1, len(steps) + 1):
        yield ".".join(steps[:count])

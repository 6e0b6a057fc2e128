"""What a failed program said last, as the one line that tells a person why."""

from __future__ import annotations

import re

TAIL_BYTES = 4096
"""How much of the end of an output is looked at."""
_LIMIT = 300
_REFUSED_BY_NETWORK = b"No route to host"
_LEADS_OUT = (
    "jobs reach the open internet, and nothing that is private or this server's unless its administrator opens it "
    "(engine.network_allow)"
)
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?:: .*)?$")
_REFUSED = re.compile(r"^\S*python[\d.]*: ((?:No module named|can't open file|Error while finding).*)$")
_PLACE = re.compile(r'^\s*File "(?:.*/site/)?([^"]+)", line (\d+)')
_GRAMMAR = ("SyntaxError", "IndentationError", "TabError")


def of(tail: bytes) -> str:
    """The error that Python told at the end of ``tail``; empty if it told none."""
    lines = tail.decode("utf-8", "replace").splitlines()[-60:]
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip()
        if refused := _REFUSED.match(line):
            return _cut(refused[1])
        if lines[number] == line and _RAISED.match(line):
            return _cut(_with_place(line, lines[:number]) if line.startswith(_GRAMMAR) else _with_help(line))
    return ""


def about_network(tail: bytes) -> str:
    """What to know about the network of an organisation, if ``tail`` tells of a connection that it refused."""
    return _LEADS_OUT if _REFUSED_BY_NETWORK in tail else ""


def _with_place(line: str, before: list[str]) -> str:
    """Grammar is wrong at a place, and a traceback ends with it."""
    place = next((found for text in reversed(before) if (found := _PLACE.match(text))), None)
    return f"{line} ({place[1]}, line {place[2]})" if place else line


def _with_help(line: str) -> str:
    if line.startswith("ModuleNotFoundError: No module named "):
        return f"{line}; if a package brings it, name that in the trainer's requirements"
    return line


def _cut(text: str) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1] + "…"

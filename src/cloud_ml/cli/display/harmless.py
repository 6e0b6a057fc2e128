"""Output of jobs on a terminal: colours and progress bars pass, what would take the terminal over
does not.

A terminal obeys what it is sent: it answers questions as if its user had typed, fills the
clipboard, renames or clears itself. Whoever looks at a log did not write it. Only a terminal is
protected: a file or a pipe gets every byte.
"""

from __future__ import annotations

import re

_HARMLESS = b"mKABCDG"  # colours, erase a line, move within what is on the screen
_STRINGS = b"]PX^_"
_CONTROL = re.compile(
    rb"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"
    # titles, clipboards, and other strings for the terminal
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|(?=\x1b)|\Z)"
    rb"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    rb"|\xc2[\x80-\x9f]"  # the same as a character of eight bits
    rb"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_CUT_OFF = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\xc2)\Z")
_LONGEST = 64


class Harmless:
    """Takes a log in chunks, which may cut anything in two."""

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, chunk: bytes) -> bytes:
        """What of ``chunk``, and of what was kept back before it, may be shown now."""
        text, self._rest = self._rest + chunk, b""
        if cut := _CUT_OFF.search(text):
            text, self._rest = text[: cut.start()], _short(cut[0])
        return _CONTROL.sub(_keep_harmless, text)


def _short(rest: bytes) -> bytes:
    """A beginning that may be kept for long: of a string, whose content goes anyway, its first
    and last bytes.
    """
    if rest[1:2] and rest[1:2] in _STRINGS:
        return rest[:2] + (b"\x1b" if rest.endswith(b"\x1b") else b"")
    return rest[:_LONGEST]


def _keep_harmless(found: re.Match[bytes]) -> bytes:
    final, private = found["final"], (found["numbers"] or b"").startswith((b"<", b"=", b">", b"?"))
    return found[0] if final and final in _HARMLESS and not private else b""

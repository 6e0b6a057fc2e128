"""Diffs as they may be kept and shown: without values that look like secrets."""

from __future__ import annotations

import re

from cloud_ml.models.secrets.secret import MASK, looks_secret

_LONGEST_LINE = 2000
_ASSIGNMENT = re.compile(
    r"""([A-Za-z_][A-Za-z0-9_.-]{0,80}+)(["']?\]?\s{0,8}(?::=|=>|[:=])\s{0,8})"""
    r"""("{3}.*?(?:"{3}|$)|'{3}.*?(?:'{3}|$)|"[^"]*"|'[^']*'|[^\s,;)}]+)"""
)
_SCHEME = re.compile(r"\b(Bearer|Basic) {1,8}([A-Za-z0-9._~+/=-]{8,})")
_TYPED = (".py", ".pyi", ".ts", ".rs", ".go", ".kt", ".scala", ".swift")
"""In files of these names, what stands behind a name and a colon is a type."""
_USER = re.compile(r"://[^/\s@]{1,300}@")


def without_secrets(diff: bytes) -> bytes:
    """A diff with masks in the place of values that look like secrets, and of users in URLs."""
    lines, typed = [], True
    for line in diff.decode("utf-8", "replace").split("\n"):
        if line.startswith(("--- ", "+++ ")) and line[4:] != "/dev/null":
            typed = line.rstrip('"\t').endswith(_TYPED)
        if len(line) > _LONGEST_LINE:
            line = line[:_LONGEST_LINE] + " …"  # noqa: PLW2901 - the shorter one is meant
        shown = line
        if line[:1] in "+- @":  # git repeats a line of the file behind @@
            shown = _ASSIGNMENT.sub(_masked_type if typed else _masked, line)
        shown = _SCHEME.sub(rf"\1 {MASK}", shown)
        lines.append(_USER.sub(f"://{MASK}@", shown))
    return "\n".join(lines).encode()


def _masked_type(found: re.Match[str]) -> str:
    """The same where what is behind a colon may be a type."""
    _, between, value = found.groups()
    return _masked(found) if value[:1] in "\"'" or "=" in between else found[0]


def _masked(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    quote = value[:1] if value[:1] in "\"'" else ""
    quote *= 3 if quote and value.startswith(quote * 3) else 1
    if not looks_secret(name) or len(value) <= 2 * len(quote):
        return found[0]
    return f"{name}{between}{quote}{MASK}{quote}"

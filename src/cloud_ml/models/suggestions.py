"""What somebody may have meant by a value that is refused: one suggestion, or nothing."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]{1,2})?)\s*([kmgt]?)(?:i?b?|bytes)\s*", re.IGNORECASE)
_MILLIS = re.compile(r"([0-9]{1,6})m")
_DURATION = re.compile(
    r"\s*([0-9]+)\s*(s|sec|secs|seconds?|m|min|mins|minutes?|h|hr|hrs|hours?|d|days?)\s*",
    re.IGNORECASE,
)

_CLOCK = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,3}):([0-9]{1,2}):([0-9]{1,2})")


def name(value: Any) -> str:
    """``My_Job 2`` may be ``my-job-2``."""
    if not isinstance(value, str) or len(value) > 1000:
        return ""
    plain = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:63].rstrip("-")


def module(value: Any) -> str:
    """``trainer/task.py`` may be ``trainer.task``."""
    if not isinstance(value, str) or len(value) > 256:
        return ""
    found = value.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
    return (
        found if found != value and re.fullmatch(r"\w[\w-]*(\.\w[\w-]*)*", found, re.ASCII) else ""
    )


def memory(value: Any) -> str:
    """``100MB`` may be ``100M``, and a bare number is in megabytes."""
    match = _AMOUNT.fullmatch(str(value)) if _is_short(value) else None
    if not match or float(match[1]) == 0:
        return ""
    if match[2] in ("t", "T"):
        return f"{float(match[1]) * 1024:.2f}".rstrip("0").rstrip(".") + "G"
    return match[1] + (match[2].upper() or "M")


def cpu(value: Any) -> str:
    """``500m`` may be ``0.5``."""
    match = _MILLIS.fullmatch(str(value)) if _is_short(value) else None
    return (
        f"{int(match[1]) / 1000:.2f}".rstrip("0").rstrip(".")
        if match and int(match[1]) >= 10
        else ""
    )


def duration(value: Any) -> str:
    """``2 hours`` may be ``2h``, as may ``2:00:00`` (hours, minutes and seconds, with days
    before a dash).
    """
    if _is_short(value) and (clock := _CLOCK.fullmatch(str(value))):
        parts = ((clock[1], "d"), (clock[2], "h"), (clock[3], "m"), (clock[4], "s"))
        return "".join(f"{int(number)}{unit}" for number, unit in parts if number and int(number))
    match = _DURATION.fullmatch(str(value)) if _is_short(value) else None
    return match[1] + match[2][0].lower() if match and 0 < int(match[1]) < 10_000 else ""


def _is_short(value: Any) -> bool:
    """Whether a value is short enough to be an amount that somebody typed."""
    if isinstance(value, int):
        return abs(value) < 10**18
    return isinstance(value, (str, float)) and len(str(value)) <= 20

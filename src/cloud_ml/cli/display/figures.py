"""Amounts as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Bytes: ``512 B``, ``1.5 MiB``, ``120 GiB``."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return (
        f"{count:.0f} {_UNITS[unit]}"
        if unit == 0 or count >= 99.95
        else f"{count:.1f} {_UNITS[unit]}"
    )


def span(seconds: float) -> str:
    """A duration: ``40 ms``, ``3.2 s``, ``1 m 20 s``, ``2 h 05 m``, ``3 d 04 h``."""
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def clock(seconds: float) -> str:
    """A duration as a clock counts it: ``0:05``, ``1:02:03``."""
    whole = round(max(seconds, 0.0))
    minutes = f"{whole % 3600 // 60:02}" if whole >= 3600 else f"{whole // 60}"
    return (f"{whole // 3600}:" if whole >= 3600 else "") + f"{minutes}:{whole % 60:02}"


def files(count: int) -> str:
    """Such as ``1 file`` and ``3 files``."""
    return "1 file" if count == 1 else f"{count} files"


def number(value: float) -> str:
    """A value of a metric, to six digits: ``0.25``, ``1.5e-07``, ``nan``."""
    return f"{value:.6g}"

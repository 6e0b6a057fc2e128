"""How many processes a job may have, so that all jobs together leave some to the rest of the
machine.
"""

from __future__ import annotations

from pathlib import Path

_TABLES = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")
_LEAST = 256


def process_limit(limit: int, places: int) -> int:
    """``limit``, or less where so many jobs could take more than half of what the kernel can have.

    Args:
        limit: The operator's setting.
        places: Jobs at once.
    """
    return min(limit, max(_LEAST, kernel_limit() // 2 // max(1, places)))


def kernel_limit() -> int:
    """Processes and threads that the kernel can have at once."""
    return min(int(Path(table).read_text("ascii")) for table in _TABLES)

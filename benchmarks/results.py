"""What was measured, kept in ``benchmarks/results``: a file for each part, with the machine's
facts and the date.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Figure

FOLDER = Path(__file__).parent / "results"


def write(part: str, figures: Sequence[Figure], *, load: float, took_s: float) -> None:
    """Keep the figures of one part; ``load`` is the machine's before they were taken."""
    document = {
        "part": part,
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took_s": round(took_s),
        "machine": {**facts(), "load_before": round(load, 1)},
        "figures": [dataclasses.asdict(figure) | {"met": figure.met} for figure in figures],
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{part}.json").write_text(json.dumps(document, indent=1) + "\n")


def read() -> dict[str, Any]:
    """Part → what was kept of it."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def facts() -> dict[str, object]:
    """What the figures depend on, without a name by which the machine could be told."""
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu[1] if cpu else platform.machine(),
        "memory_gib": round(memory),
        "linux": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
    }

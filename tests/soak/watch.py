"""What a server holds on to while it works: memory, descriptors, threads; how it grows, and a
picture of it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from cloud_ml.engines.local.processes import proctree

_WIDTH, _HEIGHT, _GAP = 900, 120, 40


@dataclass(frozen=True)
class Sample:
    """``minutes`` since the start; memory in MB that no file is behind, of each kind of process by
    itself.

    All of it, also where a child shares it: of a part of it there would be more whenever fewer jobs
    run. What supervisors take goes up and down with the jobs.
    """

    minutes: float
    server_mb: float
    spawner_mb: float
    server_descriptors: int
    spawner_descriptors: int
    server_threads: int
    supervisors_mb: float
    processes: int


class Watch:
    """Samples of a server and its spawner, kept in order."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()

    def look(self, server: int, spawner: int) -> Sample:
        """Take one. Jobs under way count as processes, not as memory of the spawner."""
        process = psutil.Process(server)
        sample = Sample(
            round((time.monotonic() - self._began) / 60, 3),
            _memory_mb(server),
            _memory_mb(spawner),
            process.num_fds(),
            _descriptors(spawner),
            process.num_threads(),
            round(sum(_memory_mb(child.pid) for child in _children(spawner)), 2),
            1 + len(list(proctree.descendants(spawner))),
        )
        self.samples.append(sample)
        return sample

    def write(self, folder: Path) -> None:
        """Write the samples as a table and as a picture."""
        names = [field.name for field in fields(Sample)]
        rows = [names, *([str(value) for value in astuple(sample)] for sample in self.samples)]
        (folder / "samples.csv").write_text("".join(",".join(row) + "\n" for row in rows))
        (folder / "samples.svg").write_text(_picture(self.samples, names[1:]))


@dataclass(frozen=True)
class Growth:
    """How a figure went from the first to the last quarter, behind a warm-up; ``slope`` is per
    hour.
    """

    name: str
    before: float
    after: float
    slope: float

    @property
    def percent(self) -> float:
        """Of what it was."""
        return 100 * (self.after - self.before) / self.before if self.before else 0.0


def growth(samples: Sequence[Sample], name: str, warm_up: float = 0.2) -> Growth:
    """How the figure ``name`` grew, without the first ``warm_up`` of the samples."""
    kept = samples[int(len(samples) * warm_up) :]
    values = [float(getattr(sample, name)) for sample in kept]
    hours = [sample.minutes / 60 for sample in kept]
    quarter = max(1, len(values) // 4)
    middle, mean = sum(hours) / len(hours), sum(values) / len(values)
    spread = sum((hour - middle) ** 2 for hour in hours)
    together = sum(
        (hour - middle) * (value - mean) for hour, value in zip(hours, values, strict=True)
    )
    first, last = values[:quarter], values[-quarter:]
    return Growth(
        name, sum(first) / quarter, sum(last) / quarter, together / spread if spread else 0.0
    )


def _memory_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        found = re.search(
            r"^Anonymous: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE
        )
        return round(int(found[1]) / 1024, 2) if found else 0.0
    return 0.0


def _descriptors(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).num_fds())
    return 0


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children())
    return []


def _picture(samples: Sequence[Sample], names: Sequence[str]) -> str:
    """One line for each figure, each with its own scale from zero."""
    last = max(samples[-1].minutes, 1e-9)
    parts = []
    for row, name in enumerate(names):
        top = row * (_HEIGHT + _GAP) + _GAP
        values = [float(getattr(sample, name)) for sample in samples]
        most = max(values) or 1.0
        points = " ".join(
            f"{_WIDTH * sample.minutes / last:.1f},{top + _HEIGHT - _HEIGHT * value / most:.1f}"
            for sample, value in zip(samples, values, strict=True)
        )
        parts.append(
            f'<text x="0" y="{top - 8}">{name}: at most {most:g}, at the end {values[-1]:g}, '
            f"{growth(samples, name).slope:+.2f} an hour</text>"
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="#26547c" stroke-width="1.5"/>'
        )
    height = len(names) * (_HEIGHT + _GAP) + _GAP
    style = "font: 13px sans-serif"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 {_WIDTH + 20} {height}" '
        f'style="{style}">'
        f"{''.join(parts)}</svg>\n"
    )

"""What a function costs, measured in a process of its own."""

from __future__ import annotations

import json
import math
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_FACTOR = 16


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time, and bytes that the memory grew by at its highest."""

    cpu_s: float
    memory_bytes: int


def cost_of(function: Callable[[], object]) -> Cost:
    """Run ``function`` in a forked process and measure that process alone, not its children."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            before, began = _resident(), _used_s()
            function()
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            os.write(writing, json.dumps([_used_s() - began, max(0, peak - before)]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the measured function failed: {status}"
    return Cost(*json.loads(report))


def growth(
    function: Callable[[int], Callable[[], object]],
    size: int,
    below: float = 1.5,
    rounds: int = 6,
) -> tuple[Cost, float]:
    """The cost at sixteen times ``size``, and the power of the size with which it grows.

    Linear work gives about 1, quadratic work 2, work that does not depend on the size 0: the
    logarithm to the base 16 of what the processor time is multiplied by. Both sizes are measured
    by turns until the growth is less than ``below``. What counts is the least of the one beside the
    least of the other, or the median of the rounds if that is lower. A virtual machine now and then
    tells twice or half of what a run has cost; a half in the result is a factor of four.
    """
    small, large = [], []
    for _ in range(rounds):
        small.append(max(cost_of(function(size)).cpu_s, 1e-4))
        large.append(cost_of(function(_FACTOR * size)))
        least = Cost(min(one.cpu_s for one in large), min(one.memory_bytes for one in large))
        of_rounds = [one.cpu_s / other for one, other in zip(large, small, strict=True)]
        times = max(1.0, min(least.cpu_s / min(small), median(of_rounds)))
        if (power := math.log(times, _FACTOR)) < below:
            break
    return least, power


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

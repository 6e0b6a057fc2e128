"""Has a process run out of memory that runs none of the tests' code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_FIRST_TO_DIE = "1000"
_HOG = """
import sys
with open(sys.argv[1], "w") as group:
    group.write("0")
hoard = []
while True:
    hoard.append(b"." * (1 << 20))
"""
_LIMIT_S = 60.0


def exhaust(victim: int) -> None:
    """Use up the memory of the victim's control group until the kernel has killed the victim.

    The engine ends what else is in the group, and so the process that took the memory.
    """
    Path(f"/proc/{victim}/oom_score_adj").write_text(_FIRST_TO_DIE)
    hog = subprocess.Popen([sys.executable, "-c", _HOG, str(_group_of(victim) / "cgroup.procs")])
    try:
        hog.wait(_LIMIT_S)
    finally:
        hog.kill()
        hog.wait()


def _group_of(pid: int) -> Path:
    """The folder of the control group that limits the memory of a process."""
    paths = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text("ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    if "memory" in paths:
        return _CGROUPS / "memory" / paths["memory"]
    return _CGROUPS / paths[""]

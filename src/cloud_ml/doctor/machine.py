"""The machine itself: processors, memory, open files, accelerators."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cloud_ml import __version__, open_files
from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.models.common import format_memory

_AREA = Area("machine")
_LEAST_MEMORY = 2 * 2**30
_LEAST_FILES = 4096
_MANY_FILES = 10**9
_GPU_TIMEOUT_S = 10.0


def examine() -> Iterator[Finding]:
    """Look at the machine."""
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    yield _AREA.ok(
        "system", f"{system}, Python {platform.python_version()}, Cloud ML {__version__}"
    )
    cores = len(os.sched_getaffinity(0))
    total, free = _memory()
    message = f"{cores} cores, {format_memory(total)} of memory, {format_memory(free)} of it free"
    if total < _LEAST_MEMORY:
        yield _AREA.warning("size", message, "jobs of the larger frameworks need 2G and more")
    else:
        yield _AREA.ok("size", message)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the server asks for all that it can have
    most = "as many as memory holds" if hard == resource.RLIM_INFINITY else f"at most {hard}"
    if hard != resource.RLIM_INFINITY and hard < _LEAST_FILES:
        message = f"{most}, which is enough for {open_files.connections_that_fit(hard)} connections"
        remedy = f"ulimit -Hn {_LEAST_FILES}, or LimitNOFILE={_LEAST_FILES} in the unit of systemd"
        yield _AREA.warning("open files", message, remedy)
    else:
        yield _AREA.ok("open files", most)
    yield _open_files_of_all()
    yield _gpus()


def _open_files_of_all() -> Finding:
    """How many files all processes together may have open. One organisation's jobs could take
    them all.
    """
    most = int(Path("/proc/sys/fs/file-max").read_text("ascii"))
    if most >= _MANY_FILES:
        return _AREA.ok("open files of all", "as many as memory holds")
    message = (
        f"at most {most}: jobs of one organisation could take all of them, "
        "and others' could open none"
    )
    return _AREA.warning(
        "open files of all",
        message,
        "sysctl fs.file-max=9223372036854775807, which systemd sets by itself",
    )


def _memory() -> tuple[int, int]:
    """Bytes of memory: all, and what could be given to new processes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text("ascii").splitlines())
    table = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    return table.get("MemTotal", 0), table.get("MemAvailable", 0)


def _gpus() -> Finding:
    program = shutil.which("nvidia-smi")
    if program is None:
        return _AREA.ok(
            "gpus",
            "none; jobs that ask for one are refused (api.gpu_missing = 'ignore' lets them run)",
        )
    line = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        completed = subprocess.run(  # noqa: S603
            line, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return _AREA.warning(
            "gpus", f"nvidia-smi is there and does not answer: {error}", "look at the driver"
        )
    return _AREA.ok("gpus", "; ".join(completed.stdout.strip().splitlines()) or "none")

"""The bytecode of installed packages: compiled once for all jobs, which may not write where the
packages lie.

Tests of packages are left out. They are half of the files of NumPy, SciPy, pandas and scikit-learn,
and no job imports them; one that does compiles them for itself.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from cloud_ml.environments import process
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.packages.uv import Uv, same_place

_LEFT_OUT = re.compile(r"/tests?/")
_SHOWN_FROM = 200
"""Fewer files take less than a second or two."""
_MOST_WORKERS = 16
_COMPILE = """
import compileall, os, re, sys
site, left_out, most = sys.argv[1], re.compile(sys.argv[2]), int(sys.argv[3])
files = [os.path.join(at, name) for at, _, names in os.walk(site) for name in names]
files = [file for file in files if file.endswith(".py") and not left_out.search(file)]
files = [file for file in files if os.path.isfile(file)]
files.sort(key=os.path.getsize, reverse=True)
workers = max(1, min(most, len(os.sched_getaffinity(0)), len(files) // 100))
for worker in range(workers):
    if not os.fork():
        for file in files[worker::workers]:
            compileall.compile_file(file, quiet=2)
        os._exit(0)
for _ in range(workers):
    os.wait()
"""
"""For Python 3.6 and newer. ``compileall -j`` needs semaphores, which not every sandbox has."""


def compile_packages(site: Path, interpreter: Interpreter, uv: Uv, log: process.Output) -> None:
    """Compile the packages in ``site`` on all cores, where ``uv`` runs; files that do not compile
    are passed over.

    Raises:
        EnvironmentFailed: It took too long, or could not be started.
    """
    count = sum(
        not _LEFT_OUT.search(str(file.relative_to(site.parent))) for file in site.rglob("*.py")
    )
    if not count:
        return
    if count >= _SHOWN_FROM:
        log(f"Compiling {count} files of these packages, once for all jobs\n".encode())
    began = time.monotonic()
    command = [str(interpreter.path), "-I", "-S", "-c", _COMPILE]
    command += [site.name, _LEFT_OUT.pattern, str(_MOST_WORKERS)]
    try:
        _run(command, site.parent, interpreter, uv)
    except TimeoutError as error:
        raise EnvironmentFailed(
            "EnvironmentFailed", f"compiling the packages took too long: {error}"
        ) from error
    except OSError as error:
        raise EnvironmentFailed(
            "EnvironmentFailed", f"the packages cannot be compiled: {error}"
        ) from error
    took_s = time.monotonic() - began
    log(f"Bytecode compiled {count} file{'s' * (count != 1)} in {took_s:.2f}s\n".encode())


def _run(command: list[str], folder: Path, interpreter: Interpreter, uv: Uv) -> None:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    if uv.sandbox is None:
        guard = uv.guard([folder])
        process.run(
            command,
            environment=environment,
            timeout_s=uv.timeout_s,
            output=process.OutputTail(),
            folder=str(folder),
            guard=guard,
        )
        return
    prefix = [interpreter.prefix] if interpreter.mounted else []
    uv.sandbox.run(
        command,
        read_only=same_place(*prefix),
        writable=same_place(folder),
        environment=environment,
        network=False,
        timeout_s=uv.timeout_s,
        output=process.OutputTail(),
    )

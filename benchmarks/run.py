"""Every figure that we promise, in one run, beside its floor or its peers: ``make bench``, ``make load``,
``make bench-peers``, ``make bench-serving``.

Run: ``python benchmarks/run.py [--strict] [group or part …]``; with ``--strict`` it exits with 1 when a
target is missed. Each part runs in a process of its own for at most ``BENCH_LIMIT_S`` seconds. What a
part has measured is written to ``benchmarks/results`` when it is complete; otherwise what was there
stays. ``docs/performance.md`` is filled from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import results
from harness import Figure, NotHere

from cloud_ml.engines.local.processes import proctree

GROUPS = {
    "own": (
        "job_start",
        "job_rate",
        "job_environments",
        "gang",
        "failover",
        "gang_log",
        "commands",
        "idle",
        "lists",
    ),
    "storage": ("storage",),
    "imports": ("job_zygote",),
    "load": (
        "load.cost",
        "load.requests",
        "load.flood",
        "load.followers",
        "load.lines",
        "load.slow",
    ),
    "serving": ("serving.cost", "serving.varied", "serving.waits", "serving.memory"),
    "tracking": ("tracking.runs", "tracking.event_files", "tracking.idle"),
    "tuning": (
        "tuning.quality",
        "tuning.suggestions",
        "tuning.fronts",
        "tuning.hypervolumes",
        "tuning.stopping",
        "tuning.ask_tell",
        "tuning.trials",
    ),
    "peers": (
        "peers.jobs",
        "peers.environments",
        "peers.commands",
        "peers.distributed",
        "peers.tensorflow_ps",
    ),
}
PARTS = tuple(part for group in GROUPS.values() for part in group)
LIMIT_S = float(os.environ.get("BENCH_LIMIT_S", "300"))
_INSTALLS_S = 1200.0
"""More for parts that install peers when they run first. Each peer has a limit of its own there."""
_ONE = "--one"
_PASSED_OVER = 77
"""The exit code of a part that is passed over, as test suites have it since Automake."""
_FAREWELL_S = 40.0
"""So long may a part that was told to stop take to stop its servers."""


def main() -> int:
    if sys.argv[1:2] == [_ONE]:
        return _one(sys.argv[2], Path(sys.argv[3]))
    signal.signal(signal.SIGTERM, _told_to_stop)  # which tells the part that runs
    strict = "--strict" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--strict"] or ["own"]
    chosen = list(dict.fromkeys(part for word in words for part in GROUPS.get(word, (word,))))
    if unknown := set(chosen) - set(PARTS):
        print(
            f"there is no {', '.join(sorted(unknown))}; there is {', '.join((*GROUPS, *PARTS))}",
            file=sys.stderr,
        )
        return 2
    figures: list[Figure] = []
    failed, begin = [], time.monotonic()
    for name in chosen:
        print(f"{name} …", flush=True)
        found = _apart(name)
        if found is None:
            print(f"  {name} is passed over", file=sys.stderr)
        elif found:
            figures += found
        else:  # one that cannot be taken does not cost the others
            print(f"  {name} gives no figure", file=sys.stderr)
            failed.append(name)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}, {time.monotonic() - begin:.0f} s in all; ", end="")
    print("the last columns: a floor or a peer of the same run, the ratio to it\n")
    for figure in figures:
        print(figure)
    return 1 if failed or (strict and not all(figure.met for figure in figures)) else 0


def _apart(name: str) -> Sequence[Figure] | None:
    """Run a part in a process of its own, and keep what it measured; nothing if it fails or takes
    too long.

    ``None`` if this machine lacks what it needs.
    """
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cloudml-bench-") as folder:
        out = Path(folder) / "figures.json"
        process = subprocess.Popen(
            [sys.executable, __file__, _ONE, name, out], start_new_session=True
        )
        limit_s = LIMIT_S + _INSTALLS_S * name.startswith(
            ("peers.", "serving.", "tuning.", "tracking.")
        )
        try:
            ended = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"  {name} takes longer than {limit_s:.0f} s (BENCH_LIMIT_S)", file=sys.stderr)
            ended = 1
        finally:
            _end(process)
        if ended == _PASSED_OVER:
            return None
        found = (
            [Figure(**document) for document in json.loads(out.read_text())]
            if ended == 0 and out.exists()
            else []
        )
    if found:
        results.write(name, found, load=load, took_s=time.monotonic() - began)
    return found


def _one(name: str, out: Path) -> int:
    """A part, in this process."""
    signal.signal(signal.SIGTERM, _told_to_stop)
    try:
        found = importlib.import_module(name).run()
    except SystemExit as error:
        print(f"  {name}: {error}", file=sys.stderr)
        return _PASSED_OVER if isinstance(error, NotHere) else 1
    out.write_text(json.dumps([dataclasses.asdict(figure) for figure in found]))
    return 0


def _told_to_stop(*_: object) -> NoReturn:
    raise SystemExit("it was told to stop")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a part that runs yet stop what it has started, then end whatever is left of it."""
    if process.poll() is not None:
        return
    with contextlib.ExitStack() as stack:
        below = []
        for pid in proctree.descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                below.append(os.pidfd_open(pid))
                stack.callback(os.close, below[-1])
        process.terminate()
        try:
            process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for one in below:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(one, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())

"""Every figure that we promise, in one run, beside its floor or its peers: ``make bench``, ``make load``, ``make bench-peers``, ``make bench-serving``.

Run: ``python benchmarks/run.py [--strict] [group or part …]``; with ``--strict`` it exits with 1 when a target is
missed. What was measured is written to ``benchmarks/results``, from which ``docs/performance.md`` is filled.
"""  # noqa: E501

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence

import results
from harness import Figure

GROUPS = {
    "own": ("job_start", "job_rate", "job_environments", "commands", "idle", "lists"),
    "load": ("load.cost", "load.requests", "load.flood", "load.followers", "load.lines", "load.slow"),
    "serving": ("serving.cost", "serving.waits", "serving.memory"),
    "peers": ("peers.jobs", "peers.environments", "peers.commands"),
}
PARTS = tuple(part for group in GROUPS.values() for part in group)


def main() -> int:
    strict = "--strict" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--strict"] or ["own"]
    chosen = list(dict.fromkeys(part for word in words for part in GROUPS.get(word, (word,))))
    if unknown := set(chosen) - set(PARTS):
        print(f"there is no {', '.join(sorted(unknown))}; there is {', '.join((*GROUPS, *PARTS))}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    failed = []
    for name in chosen:
        print(f"{name} …", flush=True)
        try:
            found = _run(name)
        except SystemExit as error:  # one that cannot be taken does not cost the others
            print(f"  {name} gives no figure: {error}", file=sys.stderr)
            failed.append(name)
            continue
        figures += found
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}; the last columns: a floor or a peer of the same run, the ratio to it\n")
    for figure in figures:
        print(figure)
    return 1 if failed or (strict and not all(figure.met for figure in figures)) else 0


def _run(name: str) -> Sequence[Figure]:
    load, began = os.getloadavg()[0], time.monotonic()
    found: Sequence[Figure] = importlib.import_module(name).run()
    if found:
        results.write(name, found, load=load, took_s=time.monotonic() - began)
    return found


if __name__ == "__main__":
    sys.exit(main())

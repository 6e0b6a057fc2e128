"""Every figure that we promise, in one run, beside its floor: what ``make bench`` prints.

Run: ``python benchmarks/run.py [--strict] [part …]``; with ``--strict`` it exits with 1 when a target is missed.
"""

from __future__ import annotations

import importlib
import os
import sys

from harness import Figure

PARTS = ("job_start", "job_rate", "job_environments", "commands", "idle", "lists")


def main() -> int:
    strict = "--strict" in sys.argv
    chosen = [word for word in sys.argv[1:] if word != "--strict"] or PARTS
    if unknown := set(chosen) - set(PARTS):
        print(f"there is no {', '.join(sorted(unknown))}; there is {', '.join(PARTS)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for name in chosen:
        print(f"{name} …", flush=True)
        figures += importlib.import_module(name).run()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}; the last columns are a floor of the same run and the ratio to it\n")
    for figure in figures:
        print(figure)
    return 1 if strict and not all(figure.met for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())

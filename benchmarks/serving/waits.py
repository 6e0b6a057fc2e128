"""What 1, 8 and 32 callers wait for the line model, each on a connection of its own, and all on one.

Run: ``python benchmarks/run.py serving.waits``.
"""

from __future__ import annotations

from pathlib import Path

from harness import Figure, high, median, temporary_folder

from serving.asking import OIP, TFS, V1, V2, question
from serving.cost import SECONDS, answers_well, passed_over
from serving.models import rows, save
from serving.pressing import press
from serving.servers import OTHERS, OURS, Kind, Running, ours, theirs, version

CALLERS = (1, 8, 32)
ALONE_MS, MANY_MS = 0.10, 5.0
"""What one caller waits at the median, and 32 at the 99th of a hundred, at most."""

Waited = dict[tuple[str, int], tuple[float, float]]
"""(gRPC or JSON, callers) → median and 99th of a hundred, in milliseconds."""


def run() -> list[Figure]:
    with temporary_folder() as folder:
        file = save("linear", folder / "linear")
        with ours(folder, ["linear"]) as running:
            mine = _waited(running, OURS, file, (TFS, V1))
        peers: dict[str, Waited] = {}
        for peer, kind in OTHERS.items():
            with passed_over(kind.name), theirs(peer, file) as running:
                ways = [way for way in ((OIP, V1) if V1 in kind.ways else (OIP, V2)) if way in kind.ways]
                peers[version(peer)] = _waited(running, kind, file, ways)
    figures = []
    for (way, callers), (middle, worst) in mine.items():
        told = f"{way}, {callers} caller{'s' * (callers > 1)}, linear"
        beside = [(name, *waited[way, callers]) for name, waited in peers.items() if (way, callers) in waited]
        for name, their_middle, their_worst in beside or [("", 0.0, 0.0)]:
            scale = max(1, callers)
            figures += [
                Figure(f"{told}: p50", middle, "ms", ALONE_MS * scale, their_middle or None, name),
                Figure(f"{told}: p99", worst, "ms", MANY_MS, their_worst or None, name),
            ]
    return figures


def _waited(running: Running, kind: Kind, file: Path, ways: tuple[str, ...] | list[str]) -> Waited:
    found: Waited = {}
    for way in ways:
        asked = question(way, "linear", rows("linear", 1), kind.path if way == V1 else "")
        with passed_over(f"{kind.name}, {way}"):
            answers_well(running, asked, file, "linear", 1)
            port = running.grpc if asked.grpc else running.http
            for callers in CALLERS:
                rate = press(port, asked, 20 * callers, clients=callers).rate
                best: list[float] = []
                for _ in range(3):
                    took = press(port, asked, max(callers, int(rate * SECONDS)), clients=callers).ms
                    best = min(best or took, took, key=median)
                found["gRPC" if asked.grpc else "JSON", callers] = median(best), high(best)
                print(f"  {kind.name}, {way}, {callers}: {median(best):.2f} ms, p99 {high(best):.2f} ms", flush=True)
    return found


if __name__ == "__main__":
    for figure in run():
        print(figure)

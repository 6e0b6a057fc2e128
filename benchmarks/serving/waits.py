"""What 1, 8 and 32 callers wait for the line model, each on a connection of its own.

One caller alone lets the machine sleep between two calls, so it is asked for once more while that
stays awake; what an echo takes then and before says what of it is the machine's.

Run: ``python benchmarks/run.py serving.waits``.
"""

from __future__ import annotations

from pathlib import Path

from harness import Figure, high, median, temporary_folder
from load.machine import awake

from serving import floors
from serving.cost import SECONDS, answers_well, passed_over
from serving.models import rows, save
from serving.pressing import press
from serving.queries import OIP, TFS, V1, V2, Question, question
from serving.servers import OTHERS, OURS, Kind, Running, ours, theirs, version

CALLERS = (1, 8, 32)
AWAKE = 0
"""Stands for one caller of a machine that does not sleep."""
ALONE_MS, MANY_MS = 0.10, 5.0
"""What one caller waits at the median, and 32 at the 99th of a hundred, at most."""

Waited = dict[tuple[str, int], tuple[float, float]]
"""(gRPC or JSON, callers) → median and 99th of a hundred, in milliseconds."""
ECHO = "echo on the same event loop"


def run() -> list[Figure]:
    with temporary_folder() as folder:
        file = save("linear", folder / "linear")
        with ours(folder, ["linear"]) as running:
            mine = _waited(running, OURS, file, (TFS, V1))
        peers: dict[str, Waited] = {}
        for peer, kind in OTHERS.items():
            with passed_over(kind.name), theirs(peer, file) as running:
                ways = [
                    way for way in ((OIP, V1) if V1 in kind.ways else (OIP, V2)) if way in kind.ways
                ]
                peers[version(peer)] = _waited(running, kind, file, ways)
    peers[ECHO] = _echo()
    figures = []
    for (way, callers), (middle, worst) in mine.items():
        title = f"{way}, {callers or 1} caller{'s' * (callers > 1)}, linear"
        if callers == AWAKE:
            title += ", cores kept awake"
        beside = [
            (name, *waited[way, callers])
            for name, waited in peers.items()
            if (way, callers) in waited
        ]
        for name, their_middle, their_worst in beside or [("", 0.0, 0.0)]:
            scale = max(1, callers)
            figures += [
                Figure(f"{title}: p50", middle, "ms", ALONE_MS * scale, their_middle or None, name),
                Figure(f"{title}: p99", worst, "ms", MANY_MS, their_worst or None, name),
            ]
    return figures


def _waited(running: Running, kind: Kind, file: Path, ways: tuple[str, ...] | list[str]) -> Waited:
    found: Waited = {}
    for way in ways:
        query = question(way, "linear", rows("linear", 1), kind.path if way == V1 else "")
        with passed_over(f"{kind.name}, {way}"):
            answers_well(running, query, file, "linear", 1)
            port = running.grpc if query.grpc else running.http
            for callers in CALLERS:
                found["gRPC" if query.grpc else "JSON", callers] = _least(port, query, callers)
            with awake():
                found["gRPC" if query.grpc else "JSON", AWAKE] = _least(port, query, 1)
    for (way, callers), (middle, worst) in found.items():
        print(
            f"  {kind.name}, {way}, {callers or 'awake'}: {middle:.3f} ms, p99 {worst:.3f} ms",
            flush=True,
        )
    return found


def _least(port: int, query: Question, callers: int) -> tuple[float, float]:
    """Of three rounds, the one with the least median."""
    rate = press(port, query, 20 * callers, clients=callers).rate
    rounds = [
        press(port, query, max(callers, int(rate * SECONDS)), clients=callers).ms for _ in range(3)
    ]
    best = min(rounds, key=median)
    return median(best), high(best)


def _echo() -> Waited:
    """The least that one caller can wait for here, over HTTP/1.1; over HTTP/2 nobody waits less."""
    with floors.echo() as (_, port, query):
        sleepy = _least(port, query, 1)
        with awake():
            lively = _least(port, query, 1)
    return {
        (way, callers): each
        for way in ("gRPC", "JSON")
        for callers, each in ((1, sleepy), (AWAKE, lively))
    }


if __name__ == "__main__":
    for figure in run():
        print(figure)

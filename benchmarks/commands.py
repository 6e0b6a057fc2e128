"""What a user waits for before anything happens: the command line and the import of the SDK.

Run: ``python benchmarks/commands.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import CLOUDML, KEY, SECRET, Figure, bare, median, serving, timed

ROUNDS = 20


def wall(command: list[str | Path], environment: dict[str, str]) -> float:
    """Median milliseconds of a command from its start to its end."""

    def once() -> None:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, cwd="/")

    once()
    return median([timed(once) for _ in range(ROUNDS)])


def run() -> list[Figure]:
    with serving() as server:
        known = server.environment(
            CLOUDML_ENDPOINT=server.endpoint, CLOUDML_ACCESS_KEY=KEY, CLOUDML_SECRET_KEY=SECRET
        )
        floor = wall(list(bare()), known)
        commands: list[tuple[str, list[str | Path], float]] = [
            ("cloudml --help", [CLOUDML, "--help"], 60),
            ("cloudml jobs list", [CLOUDML, "jobs", "list"], 100),
            ("import cloud_ml.client", [sys.executable, "-c", "import cloud_ml.client"], 60),
        ]
        return [
            Figure(name, wall(command, known), "ms", target, floor, "bare python")
            for name, command, target in commands
        ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
